/* NVML's functions for what happens on a device: samples of utilization, processes, events.
 *
 * Structures are those of NVML's header, written anew here as far as they are needed.
 */

#include "scenario.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERED = 120 }; /* samples that a driver keeps: 72 or 100 in ctrl2080perf.h of the open kernel modules */

typedef struct { ull time_us; Value value; } Sample;
typedef struct { uint gpu, memory; } Utilization;

static double period_of(const Device *device, double at_s) { return number_at(device, "sample_period_s", at_s, 1 / 6.0); }

/* A driver whose buffer runs dry takes no sample once the device has been idle for dry_after_s. */
static int is_dry(const Device *device, const Track *busy, double at_s)
{
    double after_s = number_at(device, "dry_after_s", at_s, -1);
    return after_s >= 0 && mean_of(busy, at_s - after_s > 0 ? at_s - after_s : 0, at_s) == 0;
}

/* Fill in samples after since_us, one each period: the mean of it. They are there sample_lag_s after their end, or with
 * the next batch, as a GSP hands them over each second. Returns how many. */
static uint take_samples(const Device *device, ull since_us, Sample *samples)
{
    const Track *busy = find_track(device->name, "utilization_share", "", 0);
    double now = now_s(), period_s = period_of(device, now), phase_s = number_at(device, "sample_phase_s", now, 0);
    double batch_s = number_at(device, "sample_batch_s", now, 0), lag_s = number_at(device, "sample_lag_s", now, 0);
    double until_s = (batch_s ? floor(now / batch_s) * batch_s : now) - lag_s;
    long last = (long)floor((until_s - phase_s) / period_s + 1e-9);
    uint count = 0;
    for (long i = last - BUFFERED + 1 > 1 ? last - BUFFERED + 1 : 1; i <= last; i++) {
        double end_s = phase_s + i * period_s;
        ull time_us = device_microseconds(device, end_s);
        double mean = time_us > since_us ? mean_of(busy, end_s - period_s, end_s) : -1;
        if (mean >= 0 && !is_dry(device, busy, end_s))
            samples[count++] = (Sample){time_us, {.number = (uint)(mean * 100 + 0.5)}};
    }
    return count;
}

int nvmlDeviceGetSamples(Device *device, uint kind, ull since_us, uint *value_type, uint *count, Sample *samples)
{
    Sample found[BUFFERED];
    ENTER(device);
    if (kind != 1 || !find_track(device->name, "utilization_share", "", 0))
        return leave(NOT_SUPPORTED);
    uint there = take_samples(device, value_of(device->name, "repeats_samples", "") ? 0 : since_us, found);
    *value_type = 1;
    if (!samples) { /* the size of the buffer is asked for */
        *count = BUFFERED;
        return leave(SUCCESS);
    }
    if (!there && !value_of(device->name, "dry_is_empty", ""))
        return leave(NOT_FOUND);
    if (*count < there)
        return leave(INSUFFICIENT_SIZE);
    memcpy(samples, found, there * sizeof(Sample));
    *count = there;
    return leave(SUCCESS);
}

int nvmlDeviceGetUtilizationRates(Device *device, Utilization *rates)
{
    ENTER(device);
    const Track *busy = find_track(device->name, "utilization_share", "", 0);
    double period_s = period_of(device, now_s()), end_s = floor(now_s() / period_s) * period_s;
    double mean = mean_of(busy, end_s - period_s, end_s);
    rates->memory = 0;
    if (!give_uint(device, "utilization_now_share", "", 100, &rates->gpu))
        return leave(SUCCESS);
    rates->gpu = mean > 0 ? (uint)(mean * 100 + 0.5) : 0;
    return leave(busy ? SUCCESS : NOT_SUPPORTED);
}

typedef struct { uint pid; ull used_bytes; uint gpu_instance, compute_instance; } Process;
typedef struct { uint pid; ull time_us; uint sm, memory, encoder, decoder; } ProcessSample;

/* Drivers 535.43 to 535.86 put 32 bytes a process where callers of _v3 have 24; what follows is the protected memory. */
typedef struct { Process process; ull protected_bytes; } LongProcess;

static int give_processes(const Device *device, const char *name, uint *count, void *given, int is_faulty)
{
    uint there = 0;
    size_t size = is_faulty ? sizeof(LongProcess) : sizeof(Process);
    ull protected_bytes = is_faulty && number_at(device, "process_list_fault", now_s(), 0) == 1 ? ~0ULL : 0;
    for (int i = 0; i < track_count; i++) {
        if (strcmp(tracks[i].name, name) || strcmp(tracks[i].device, device->name))
            continue;
        const Entry *entry = entry_at(&tracks[i], now_s());
        if (!entry || !*entry->text)
            continue;
        if (given && there < *count) {
            ull bytes = strcmp(entry->text, "N/A") ? (ull)entry->number : ~0ULL;
            LongProcess row = {{(uint)strtoul(tracks[i].key, NULL, 10), bytes, ~0U, ~0U}, protected_bytes};
            memcpy((char *)given + there * size, &row, size);
        }
        there++;
    }
    int is_enough = there <= *count && (given || !there);
    *count = there;
    return is_enough ? SUCCESS : INSUFFICIENT_SIZE;
}

#define LIST(function, name, fault)                                                     \
    int function(Device *device, uint *count, void *processes)                          \
    {                                                                                   \
        ENTER(device);                                                                  \
        return leave(give_processes(device, name, count, processes, (fault)));          \
    }

LIST(nvmlDeviceGetComputeRunningProcesses_v2, "process_memory_bytes", 0)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics_memory_bytes", 0)

#ifndef OLD_DRIVER
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps_memory_bytes", 0)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, "process_memory_bytes",
     value_of(device->name, "process_list_fault", "") != NULL)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics_memory_bytes",
     value_of(device->name, "process_list_fault", "") != NULL)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps_memory_bytes",
     value_of(device->name, "process_list_fault", "") != NULL)
#endif

int nvmlDeviceGetProcessUtilization(Device *device, ProcessSample *samples, uint *count, ull since_us)
{
    uint there = 0;
    ENTER(device);
    for (int i = 0; i < track_count; i++) {
        if (strcmp(tracks[i].name, "process_sm_share") || strcmp(tracks[i].device, device->name))
            continue;
        const Entry *entry = entry_at(&tracks[i], now_s());
        ull time_us = device_microseconds(device, now_s());
        if (!entry || !*entry->text || time_us <= since_us)
            continue;
        if (samples && there < *count)
            samples[there] = (ProcessSample){
                (uint)strtoul(tracks[i].key, NULL, 10), time_us, (uint)(entry->number * 100 + 0.5), 0, 0, 0};
        there++;
    }
    int is_enough = samples && there <= *count;
    *count = there;
    return leave(!there ? NOT_FOUND : is_enough ? SUCCESS : INSUFFICIENT_SIZE);
}

typedef struct { Device *device; ull kind, data; uint gpu_instance, compute_instance; } Event;
typedef struct { ull kinds[MAX_DEVICES]; double seen_s; } EventSet;

enum { DOUBLE_BIT_ECC = 2, XID = 8, POLL_MS = 50 };

int nvmlEventSetCreate(EventSet **set)
{
    ENTER(NULL);
    *set = calloc(1, sizeof **set);
    (*set)->seen_s = now_s();
    return leave(SUCCESS);
}

int nvmlEventSetFree(EventSet *set)
{
    ENTER(NULL);
    free(set);
    return leave(SUCCESS);
}

int nvmlDeviceGetSupportedEventTypes(Device *device, ull *kinds)
{
    ENTER(device);
    *kinds = XID | DOUBLE_BIT_ECC;
    return leave(SUCCESS);
}

int nvmlDeviceRegisterEvents(Device *device, ull kinds, EventSet *set)
{
    ENTER(device);
    set->kinds[device->position] |= kinds;
    return leave(SUCCESS);
}

/* Find the first event after the last one that was told; two at one moment come one after the other, a hair apart. */
static int next_event(EventSet *set, Event *event)
{
    double first_s = now_s();
    int is_found = 0;
    for (int i = 0; i < track_count; i++) {
        ull kind = !strcmp(tracks[i].name, "xid") ? XID : !strcmp(tracks[i].name, "double_bit_ecc") ? DOUBLE_BIT_ECC : 0;
        for (int d = 0; kind && d < device_count; d++)
            for (int e = 0; !strcmp(devices[d].name, tracks[i].device) && e < tracks[i].count; e++) {
                const Entry *entry = &tracks[i].entries[e];
                if (entry->at_s <= set->seen_s || entry->at_s > first_s || !(set->kinds[d] & kind))
                    continue;
                first_s = entry->at_s;
                *event = (Event){&devices[d], kind, (ull)entry->number, ~0U, ~0U};
                is_found = 1;
            }
    }
    if (is_found)
        set->seen_s = first_s;
    return is_found;
}

int nvmlEventSetWait_v2(EventSet *set, Event *event, uint timeout_ms)
{
    uint pause_ms = is_fixed() ? timeout_ms : POLL_MS; /* a driver sleeps until something happens */
    struct timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000L};
    for (uint waited_ms = 0;; waited_ms += pause_ms) {
        ENTER(NULL);
        int is_found = next_event(set, event);
        leave(SUCCESS);
        if (is_found)
            return SUCCESS;
        if (waited_ms >= timeout_ms)
            return TIMEOUT;
        nanosleep(&pause, NULL);
    }
}
