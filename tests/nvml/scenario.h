/* What a scenario says, and what every function of the library does first.
 *
 * The file is named by $FAKE_NVML_SCENARIO and read again whenever it has grown, so that a test or a running program
 * can go on writing it. Its form is described in README.md. All of this is done under one lock: ENTER takes it, leave
 * gives it back.
 */

#pragma once

#include <time.h>

typedef unsigned int uint;
typedef unsigned long long ull;

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10, GPU_IS_LOST = 15, VERSION_MISMATCH = 25
};
enum { MAX_TRACKS = 4096, WORD = 64, TEXT = 128, MAX_DEVICES = 80 };

/* All values of one quantity (device, name, key), in order of time. */
typedef struct { double at_s; char text[TEXT]; double number; } Entry;
typedef struct { char device[WORD], name[WORD], key[WORD]; Entry *entries; int count, room; } Track;

/* nvmlValue_t, as far as it is used. */
typedef union { double real; uint number; ull large; } Value;

/* What nvmlDevice_t points to. */
typedef struct { int position; char name[WORD], parent[WORD]; } Device;

extern Track tracks[MAX_TRACKS];
extern int track_count;
extern Device devices[MAX_DEVICES];
extern int device_count;
extern int opened; /* how many nvmlInit are not shut down */

Track *find_track(const char *device, const char *name, const char *key, int create);
const Entry *entry_at(const Track *track, double at_s);
const Entry *value_of(const char *device, const char *name, const char *key);
double mean_of(const Track *track, double from_s, double to_s);
double now_s(void);
ull microseconds(double at_s);
ull device_microseconds(const Device *device, double at_s);
double number_at(const Device *device, const char *name, double at_s, double otherwise);

int is_fixed(void);
int enter(const char *function, const Device *device);
int leave(int answer);

#define ENTER(device)                              \
    do {                                           \
        int error = enter(__func__, device);       \
        if (error)                                 \
            return leave(error);                   \
    } while (0)

/* Give a value of a device, or NOT_SUPPORTED where the scenario has none. */
int give_uint(const Device *device, const char *name, const char *key, double factor, uint *given);
int give_ull(const Device *device, const char *name, const char *key, ull *given);
int give_text(const Device *device, const char *name, char *given, uint length);
