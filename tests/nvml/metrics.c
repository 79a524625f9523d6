/* NVML's functions for counters and GPM metrics, and others that drivers before R470 do not export.
 *
 * Structures are those of NVML's header, written anew here as far as they are needed. A version that NVML does not know is
 * refused as NVML refuses it. -DOLD_DRIVER leaves all of this out.
 */

#include "scenario.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef OLD_DRIVER

int nvmlDeviceGetCurrentClocksEventReasons(Device *device, ull *reasons)
{
    ENTER(device);
    return leave(give_ull(device, "throttle_reasons_mask", "", reasons));
}

typedef struct { uint field, scope; long long time_us, latency_us; uint value_type; int error; Value value; } Field;

int nvmlDeviceGetFieldValues(Device *device, int count, Field *fields)
{
    ENTER(device);
    for (int i = 0; i < count; i++) {
        char key[WORD];
        double number = 0;
        snprintf(key, WORD, "%u", fields[i].field);
        const Entry *entry = value_of(device->name, "field", key);
        const Track *rate = find_track(device->name, "field_per_s", key, 0);
        if (rate) /* a counter that grows by so much a second */
            number = mean_of(rate, rate->entries[0].at_s, now_s()) * (now_s() - rate->entries[0].at_s);
        else if (entry)
            number = entry->number;
        int is_short = fields[i].field == 197 || fields[i].field == 198; /* PCIe: 32 bits, "Value can be wrapped" */
        fields[i].error = entry || rate ? SUCCESS : NOT_SUPPORTED;
        fields[i].time_us = (long long)device_microseconds(device, now_s());
        fields[i].value_type = is_short ? 1 : 3;
        fields[i].value.large = (ull)(number > 0 ? number : 0) & (is_short ? 0xFFFFFFFFULL : ~0ULL);
    }
    return leave(SUCCESS);
}

typedef struct { char device[WORD]; double at_s; } Snapshot;
typedef struct { const char *short_name, *long_name, *unit; } MetricInfo;
typedef struct { uint id; int error; double value; MetricInfo info; } Metric;
typedef struct { uint version, count; Snapshot *first, *second; Metric metrics[]; } Metrics;
typedef struct { uint version, is_supported; } Support;

int nvmlGpmQueryDeviceSupport(Device *device, Support *support)
{
    ENTER(device);
    if (support->version != 1)
        return leave(VERSION_MISMATCH);
    support->is_supported = 0;
    for (int i = 0; i < track_count; i++)
        support->is_supported |= !strncmp(tracks[i].name, "gpm", 3);
    return leave(SUCCESS);
}

int nvmlGpmSampleAlloc(Snapshot **snapshot)
{
    ENTER(NULL);
    *snapshot = calloc(1, sizeof **snapshot);
    return leave(SUCCESS);
}

int nvmlGpmSampleFree(Snapshot *snapshot)
{
    ENTER(NULL);
    free(snapshot);
    return leave(SUCCESS);
}

/* A device refreshes what a snapshot takes each 100 ms: the reason why NVML asks for more than that between two. */
static double refreshed_s(const Device *device)
{
    double each_s = number_at(device, "gpm_refresh_s", now_s(), 0.1);
    return each_s ? floor(now_s() / each_s + 1e-9) * each_s : now_s();
}

int nvmlGpmSampleGet(Device *device, Snapshot *snapshot)
{
    ENTER(device);
    snprintf(snapshot->device, WORD, "%s", device->name);
    snapshot->at_s = refreshed_s(device);
    return leave(SUCCESS);
}

int nvmlGpmMigSampleGet(Device *device, uint gpu_instance, Snapshot *snapshot)
{
    ENTER(device);
    for (int i = 0; i < device_count; i++) {
        const Entry *instance = value_of(devices[i].name, "gpu_instance", "");
        if (!strcmp(devices[i].parent, device->name) && instance && (uint)instance->number == gpu_instance) {
            snprintf(snapshot->device, WORD, "%s", devices[i].name);
            snapshot->at_s = refreshed_s(device);
            return leave(SUCCESS);
        }
    }
    return leave(INVALID_ARGUMENT);
}

int nvmlGpmMetricsGet(Metrics *metrics)
{
    ENTER(NULL);
    if (metrics->version != 1)
        return leave(VERSION_MISMATCH);
    if (metrics->second->at_s <= metrics->first->at_s)
        return leave(INVALID_ARGUMENT);
    for (uint i = 0; i < metrics->count; i++) {
        char key[WORD];
        snprintf(key, WORD, "%u", metrics->metrics[i].id);
        const Track *track = find_track(metrics->first->device, "gpm", key, 0);
        const Entry *engine = value_of(metrics->first->device, "gpm_of_utilization", key); /* by how much of it */
        if (engine)
            track = find_track(metrics->first->device, "utilization_share", "", 0);
        double mean = mean_of(track, metrics->first->at_s, metrics->second->at_s);
        if (engine && mean >= 0)
            mean *= 100 * engine->number;
        metrics->metrics[i].error = mean < 0 ? NOT_SUPPORTED : SUCCESS;
        metrics->metrics[i].value = mean;
    }
    return leave(SUCCESS);
}

#endif
