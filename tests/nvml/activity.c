/* NVML's functions for what happens on a device: samples of utilization, processes, events.
 *
 * Structures are those of NVML's header, written anew here as far as they are needed.
 */

#include "scenario.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFERED = 120 }; /* samples that a driver keeps */

typedef struct { ull time_us; Value value; } Sample;
typedef struct { uint gpu, memory; } Utilization;

/* Fill in samples after since_us: those of the scenario where it has any, else one each period; returns how many. */
static uint take_samples(const Device *device, ull since_us, Sample *samples)
{
    const Track *recorded = find_track(device->name, "utilization_sample_share", "", 0);
    const Track *busy = find_track(device->name, "utilization_share", "", 0);
    const Entry *given = value_of(device->name, "sample_period_s", "");
    double period_s = given ? given->number : 1 / 6.0, now = now_s();
    uint count = 0;
    for (int i = 0; recorded && i < recorded->count; i++) {
        const Entry *entry = &recorded->entries[i];
        if (entry->at_s <= now && microseconds(entry->at_s) > since_us && count < BUFFERED)
            samples[count++] = (Sample){microseconds(entry->at_s), {.number = (uint)(entry->number * 100 + 0.5)}};
    }
    if (recorded)
        return count;
    long last = (long)(now / period_s);
    for (long i = last - BUFFERED + 1 > 1 ? last - BUFFERED + 1 : 1; i <= last; i++) {
        double mean = mean_of(busy, (i - 1) * period_s, i * period_s);
        if (mean >= 0 && microseconds(i * period_s) > since_us)
            samples[count++] = (Sample){microseconds(i * period_s), {.number = (uint)(mean * 100 + 0.5)}};
    }
    return count;
}

int nvmlDeviceGetSamples(Device *device, uint kind, ull since_us, uint *value_type, uint *count, Sample *samples)
{
    Sample found[BUFFERED];
    ENTER(device);
    if (kind != 1 || (!find_track(device->name, "utilization_share", "", 0) &&
                      !find_track(device->name, "utilization_sample_share", "", 0)))
        return leave(NOT_SUPPORTED);
    uint there = take_samples(device, value_of(device->name, "repeats_samples", "") ? 0 : since_us, found);
    *value_type = 1;
    if (!samples) { /* the size of the buffer is asked for */
        *count = BUFFERED;
        return leave(SUCCESS);
    }
    if (!there)
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
    rates->memory = 0;
    return leave(give_uint(device, "utilization_now_share", "", 100, &rates->gpu));
}

typedef struct { uint pid; ull used_bytes; uint gpu_instance, compute_instance; } Process;
typedef struct { uint pid; ull time_us; uint sm, memory, encoder, decoder; } ProcessSample;

static int give_processes(const Device *device, const char *name, uint *count, Process *processes)
{
    uint there = 0;
    for (int i = 0; i < track_count; i++) {
        if (strcmp(tracks[i].name, name) || strcmp(tracks[i].device, device->name))
            continue;
        const Entry *entry = entry_at(&tracks[i], now_s());
        if (!entry || !*entry->text)
            continue;
        if (processes && there < *count) {
            ull bytes = strcmp(entry->text, "N/A") ? (ull)entry->number : ~0ULL;
            processes[there] = (Process){(uint)atoi(tracks[i].key), bytes, ~0U, ~0U};
        }
        there++;
    }
    int is_enough = there <= *count && (processes || !there);
    *count = there;
    return is_enough ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlDeviceGetComputeRunningProcesses_v2(Device *device, uint *count, Process *processes)
{
    ENTER(device);
    return leave(give_processes(device, "process_memory_bytes", count, processes));
}

int nvmlDeviceGetGraphicsRunningProcesses_v2(Device *device, uint *count, Process *processes)
{
    ENTER(device);
    return leave(give_processes(device, "graphics_memory_bytes", count, processes));
}

#ifndef OLD_DRIVER

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, uint *count, Process *processes)
{
    ENTER(device);
    return leave(give_processes(device, "process_memory_bytes", count, processes));
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *device, uint *count, Process *processes)
{
    ENTER(device);
    return leave(give_processes(device, "graphics_memory_bytes", count, processes));
}

#endif

int nvmlDeviceGetProcessUtilization(Device *device, ProcessSample *samples, uint *count, ull since_us)
{
    uint there = 0;
    ENTER(device);
    for (int i = 0; i < track_count; i++) {
        if (strcmp(tracks[i].name, "process_sm_share") || strcmp(tracks[i].device, device->name))
            continue;
        const Entry *entry = entry_at(&tracks[i], now_s());
        if (!entry || !*entry->text || microseconds(now_s()) <= since_us)
            continue;
        if (samples && there < *count)
            samples[there] = (ProcessSample){
                (uint)atoi(tracks[i].key), microseconds(now_s()), (uint)(entry->number * 100 + 0.5), 0, 0, 0};
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
    struct timespec pause = {0, POLL_MS * 1000000L};
    for (uint waited_ms = 0;; waited_ms += POLL_MS) {
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
