/* Reads the scenario, finds values in it, and does what stands before every function: errors, losses, blocking. */

#include "scenario.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Track tracks[MAX_TRACKS];
int track_count;
enum { PLACES = 4 * MAX_TRACKS };
static int places[PLACES]; /* of tracks, counted from 1, by a hash */
static off_t read_bytes;
static char read_path[512];
static double start_s, forced_s = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ull entered_ns, spent_ns;
int opened;

Device devices[MAX_DEVICES];
int device_count;

static double wall_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static unsigned hash_of(const char *word, unsigned hash)
{
    for (; *word; word++)
        hash = (hash ^ (unsigned char)*word) * 16777619u;
    return hash * 31;
}

Track *find_track(const char *device, const char *name, const char *key, int create)
{
    unsigned place = hash_of(device, hash_of(name, hash_of(key, 2166136261u))) % PLACES;
    for (; places[place]; place = (place + 1) % PLACES) {
        Track *track = &tracks[places[place] - 1];
        if (!strcmp(track->name, name) && !strcmp(track->device, device) && !strcmp(track->key, key))
            return track;
    }
    if (!create || track_count == MAX_TRACKS)
        return NULL;
    Track *track = &tracks[track_count++];
    places[place] = track_count;
    memset(track, 0, sizeof *track);
    snprintf(track->device, WORD, "%s", device);
    snprintf(track->name, WORD, "%s", name);
    snprintf(track->key, WORD, "%s", key);
    return track;
}

static void add_entry(Track *track, double at_s, const char *text)
{
    if (track->count == track->room) {
        track->room = track->room ? 2 * track->room : 8;
        track->entries = realloc(track->entries, track->room * sizeof(Entry));
    }
    int place = track->count++;
    while (place > 0 && track->entries[place - 1].at_s > at_s) {
        track->entries[place] = track->entries[place - 1];
        place--;
    }
    track->entries[place].at_s = at_s;
    track->entries[place].number = atof(text);
    snprintf(track->entries[place].text, TEXT, "%s", text);
}

static void take_row(char *row)
{
    char *field[5] = {row, "", "", "", ""};
    row[strcspn(row, "\r\n")] = 0;
    for (int i = 1; i < 5; i++) {
        char *comma = strchr(field[i - 1], ',');
        if (!comma)
            return;
        *comma = 0;
        field[i] = comma + 1;
    }
    if (!strcmp(field[2], "start_unix_s"))
        start_s = atof(field[4]);
    else if (field[0][0] >= '0' && field[0][0] <= '9') /* neither the header nor a comment */
        add_entry(find_track(field[1], field[2], field[3], 1), atof(field[0]), field[4]);
}

static void forget(void)
{
    for (int i = 0; i < track_count; i++)
        free(tracks[i].entries);
    memset(places, 0, sizeof places);
    track_count = device_count = 0;
    read_bytes = 0;
    start_s = 0;
}

/* Say whether the scenario does not change, as where the cost of asking is measured. */
int is_fixed(void) { return getenv("FAKE_NVML_READ_ONCE") != NULL; }

/* Read what is new in the file; all of it where it became shorter, or is another one. */
static void refresh(void)
{
    struct stat status;
    char row[512];
    const char *path = getenv("FAKE_NVML_SCENARIO");
    if (start_s && is_fixed())
        return;
    if (!path || stat(path, &status))
        return;
    if (strcmp(path, read_path) || status.st_size < read_bytes)
        forget();
    snprintf(read_path, sizeof read_path, "%s", path);
    if (status.st_size == read_bytes)
        return;
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    fseeko(file, read_bytes, SEEK_SET);
    while (fgets(row, sizeof row, file) && strchr(row, '\n')) { /* a row that is being written comes next time */
        read_bytes = ftello(file);
        take_row(row);
    }
    fclose(file);
    if (!start_s)
        start_s = wall_s();
}

const Entry *entry_at(const Track *track, double at_s)
{
    int low = 0, high = track ? track->count : 0;
    while (low < high) {
        int middle = (low + high) / 2;
        if (track->entries[middle].at_s <= at_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &track->entries[low - 1] : NULL;
}

/* Say which time it is, for a test in this process; a negative time gives the scenario back its own. */
void fake_nvml_set_now(double at_s) { forced_s = at_s; }

/* Seconds of the scenario: those of the wall clock, unless a test or a row says which time it is. */
double now_s(void)
{
    if (forced_s >= 0)
        return forced_s;
    Track *track = find_track("", "now_s", "", 0);
    return track && track->count ? track->entries[track->count - 1].number : wall_s() - start_s;
}

const Entry *value_of(const char *device, const char *name, const char *key)
{
    const Entry *entry = entry_at(find_track(device, name, key, 0), now_s());
    return entry && *entry->text ? entry : NULL; /* an empty value takes one back */
}

ull microseconds(double at_s) { return (ull)((start_s + at_s) * 1e6 + 0.5); }

/* The device's own clock: off by clock_offset_s, which may change, and by clock_drift_ppm since the start. */
ull device_microseconds(const Device *device, double at_s)
{
    double offset_s = number_at(device, "clock_offset_s", at_s, 0), drift = number_at(device, "clock_drift_ppm", at_s, 0);
    return (ull)((start_s + offset_s + at_s * (1 + drift * 1e-6)) * 1e6 + 0.5);
}

double number_at(const Device *device, const char *name, double at_s, double otherwise)
{
    const Entry *entry = entry_at(find_track(device->name, name, "", 0), at_s);
    return entry && *entry->text ? entry->number : otherwise;
}

/* Return the mean of a step function over (from_s, to_s], -1 where it is not known. */
double mean_of(const Track *track, double from_s, double to_s)
{
    double sum = 0, at_s = from_s;
    const Entry *entry = entry_at(track, from_s);
    if (!track || !track->count || to_s <= from_s || track->entries[0].at_s > from_s)
        return -1;
    for (; at_s < to_s; entry++) {
        int is_last = entry == &track->entries[track->count - 1];
        double end_s = is_last || entry[1].at_s > to_s ? to_s : entry[1].at_s;
        sum += entry->number * (end_s - at_s);
        at_s = end_s;
        if (is_last)
            break;
    }
    return sum / (to_s - from_s);
}

static void block(const char *function)
{
    const Entry *entry = value_of("", "block", function);
    char path[TEXT];
    double seconds;
    if (!entry)
        return;
    seconds = entry->number;
    snprintf(path, TEXT, "%s", entry->text);
    pthread_mutex_unlock(&lock);
    if (path[0] == '/') { /* until someone opens the other end of this FIFO */
        int end = open(path, O_RDONLY);
        if (end >= 0)
            close(end);
    } else {
        struct timespec length = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
        nanosleep(&length, NULL);
    }
    pthread_mutex_lock(&lock);
}

/* Count the call in $FAKE_NVML_CALLS, where set: one line a call, so that tests see what was asked. */
static void count_call(const char *function, const char *device)
{
    const char *path = getenv("FAKE_NVML_CALLS");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%s %s\n", function, device);
        fclose(file);
    }
}

static ull clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

/* For how long functions of this library ran since they were first called, waiting for events left out. */
ull fake_nvml_spent_ns(void) { return spent_ns; }

int enter(const char *function, const Device *device)
{
    const char *name = device ? device->name : "";
    const Entry *entry;
    pthread_mutex_lock(&lock);
    entered_ns = clock_ns();
    refresh();
    count_call(function, name);
    block(function);
    if ((entry = value_of("", "driver_error", "")))
        return (int)entry->number;
    if (!opened && strcmp(function, "nvmlInitWithFlags"))
        return UNINITIALIZED;
    if (device && (value_of(name, "lost", "") || value_of(device->parent, "lost", "")))
        return GPU_IS_LOST;
    if ((entry = value_of(name, "error", function)) || (entry = value_of("", "error", function)))
        return (int)entry->number;
    return SUCCESS;
}

int leave(int answer)
{
    spent_ns += clock_ns() - entered_ns;
    pthread_mutex_unlock(&lock);
    return answer;
}

static int number_of(const Device *device, const char *name, const char *key, double *number)
{
    const Entry *entry = value_of(device->name, name, key);
    if (!entry)
        return NOT_SUPPORTED;
    *number = entry->number;
    return SUCCESS;
}

int give_uint(const Device *device, const char *name, const char *key, double factor, uint *given)
{
    double number;
    int error = number_of(device, name, key, &number);
    if (!error)
        *given = (uint)(number * factor + 0.5);
    return error;
}

int give_ull(const Device *device, const char *name, const char *key, ull *given)
{
    double number;
    int error = number_of(device, name, key, &number);
    if (!error)
        *given = (ull)number;
    return error;
}

int give_text(const Device *device, const char *name, char *given, uint length)
{
    const Entry *entry = value_of(device->name, name, "");
    if (!entry)
        return NOT_SUPPORTED;
    snprintf(given, length, "%s", entry->text);
    return SUCCESS;
}
