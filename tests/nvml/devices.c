/* NVML's functions for the driver, the list of devices, and their gauges. */

#include "scenario.h"

#include <stdio.h>
#include <string.h>

static void list_devices(void)
{
    device_count = 0;
    for (int i = 0; i < track_count && device_count < MAX_DEVICES; i++)
        if (!strcmp(tracks[i].name, "model")) {
            Device *device = &devices[device_count];
            const Entry *parent = value_of(tracks[i].device, "mig_of", "");
            device->position = device_count++;
            snprintf(device->name, WORD, "%s", tracks[i].device);
            snprintf(device->parent, WORD, "%s", parent ? parent->text : "");
        }
}

int nvmlInitWithFlags(uint flags)
{
    (void)flags;
    ENTER(NULL);
    opened++;
    list_devices();
    return leave(SUCCESS);
}

int nvmlShutdown(void)
{
    ENTER(NULL);
    opened--;
    return leave(SUCCESS);
}

const char *nvmlErrorString(int error)
{
    return error == SUCCESS ? "Success" : "an error of the scenario";
}

int nvmlSystemGetDriverVersion(char *version, uint length)
{
    ENTER(NULL);
    const Entry *entry = value_of("", "driver_version", "");
    snprintf(version, length, "%s", entry ? entry->text : "550.54.15");
    return leave(SUCCESS);
}

int nvmlDeviceGetCount_v2(uint *count)
{
    ENTER(NULL);
    *count = 0;
    for (int i = 0; i < device_count; i++)
        *count += !devices[i].parent[0];
    return leave(SUCCESS);
}

/* Find the device at this place among those of one parent. */
static Device *child(const char *parent, uint place)
{
    for (int i = 0; i < device_count; i++)
        if (!strcmp(devices[i].parent, parent) && !place--)
            return &devices[i];
    return NULL;
}

int nvmlDeviceGetHandleByIndex_v2(uint index, Device **device)
{
    ENTER(NULL);
    *device = child("", index);
    if (!*device)
        return leave(INVALID_ARGUMENT);
    return leave(value_of((*device)->name, "lost", "") ? GPU_IS_LOST : SUCCESS);
}

int nvmlDeviceGetName(Device *device, char *name, uint length)
{
    ENTER(device);
    return leave(give_text(device, "model", name, length));
}

int nvmlDeviceGetUUID(Device *device, char *uuid, uint length)
{
    ENTER(device);
    return leave(give_text(device, "uuid", uuid, length));
}

int nvmlDeviceGetMinorNumber(Device *device, uint *minor)
{
    ENTER(device);
    if (give_uint(device, "minor", "", 1, minor))
        *minor = (uint)device->position;
    return leave(SUCCESS);
}

int nvmlDeviceGetMigMode(Device *device, uint *current, uint *pending)
{
    ENTER(device);
    int error = give_uint(device, "mig_mode", "", 1, current);
    *pending = *current;
    return leave(error);
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, uint *count)
{
    ENTER(device);
    *count = 7;
    return leave(SUCCESS);
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, uint index, Device **instance)
{
    ENTER(device);
    *instance = child(device->name, index);
    return leave(*instance ? SUCCESS : NOT_FOUND);
}

int nvmlDeviceGetGpuInstanceId(Device *device, uint *id)
{
    ENTER(device);
    return leave(give_uint(device, "gpu_instance", "", 1, id));
}

typedef struct { ull total, free, used; } Memory;

/* What the driver keeps for itself counts as used in the first version, and apart from that in the second. */
static int take_memory(const Device *device, ull *reserved, Memory *memory)
{
    int error = give_ull(device, "memory_used_bytes", "", &memory->used);
    if (!error)
        error = give_ull(device, "memory_total_bytes", "", &memory->total);
    if (give_ull(device, "memory_reserved_bytes", "", reserved))
        *reserved = 0;
    memory->free = memory->total - memory->used - *reserved;
    return error;
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory)
{
    ull reserved;
    ENTER(device);
    int error = take_memory(device, &reserved, memory);
    memory->used += reserved;
    return leave(error);
}

#ifndef OLD_DRIVER

enum { MEMORY_V2 = 0x02000028 };
typedef struct { uint version; ull total, reserved, free, used; } MemoryV2;

int nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *memory)
{
    Memory plain = {0};
    ENTER(device);
    if (memory->version != MEMORY_V2)
        return leave(VERSION_MISMATCH);
    int error = take_memory(device, &memory->reserved, &plain);
    memory->total = plain.total, memory->free = plain.free, memory->used = plain.used;
    return leave(error);
}

#endif

int nvmlDeviceGetPowerUsage(Device *device, uint *milliwatts)
{
    ENTER(device);
    return leave(give_uint(device, "power_watts", "", 1000, milliwatts));
}

/* The energy counter is true where the power is a mean of some of the time: it adds up all that was drawn. */
int nvmlDeviceGetTotalEnergyConsumption(Device *device, ull *millijoules)
{
    ENTER(device);
    const Track *drawn = find_track(device->name, "drawn_watts", "", 0);
    if (!drawn)
        return leave(NOT_SUPPORTED);
    *millijoules = (ull)(mean_of(drawn, drawn->entries[0].at_s, now_s()) * (now_s() - drawn->entries[0].at_s) * 1000);
    return leave(SUCCESS);
}

/* Nanoseconds for which a policy held the clocks down, since the row. */
int nvmlDeviceGetViolationStatus(Device *device, uint policy, ull *times)
{
    ENTER(device);
    char key[WORD];
    snprintf(key, sizeof key, "%u", policy);
    const Track *held = find_track(device->name, "held_share", key, 0);
    if (!held)
        return leave(NOT_SUPPORTED);
    times[0] = microseconds(now_s());
    times[1] = (ull)(mean_of(held, held->entries[0].at_s, now_s()) * (now_s() - held->entries[0].at_s) * 1e9);
    return leave(SUCCESS);
}

int nvmlDeviceGetEnforcedPowerLimit(Device *device, uint *milliwatts)
{
    ENTER(device);
    return leave(give_uint(device, "power_limit_watts", "", 1000, milliwatts));
}

int nvmlDeviceGetTemperature(Device *device, uint sensor, uint *celsius)
{
    ENTER(device);
    return leave(sensor ? INVALID_ARGUMENT : give_uint(device, "temperature_celsius", "", 1, celsius));
}

int nvmlDeviceGetClockInfo(Device *device, uint kind, uint *megahertz)
{
    static const char *names[] = {"graphics_clock_hz", "sm_clock_hz", "memory_clock_hz", "video_clock_hz"};
    ENTER(device);
    return leave(kind > 3 ? INVALID_ARGUMENT : give_uint(device, names[kind], "", 1e-6, megahertz));
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, ull *reasons)
{
    ENTER(device);
    return leave(give_ull(device, "throttle_reasons_mask", "", reasons));
}

int nvmlDeviceGetTotalEccErrors(Device *device, uint kind, uint counter, ull *count)
{
    ENTER(device);
    (void)counter;
    return leave(give_ull(device, kind ? "ecc_uncorrected_count" : "ecc_corrected_count", "", count));
}

int nvmlDeviceGetPcieThroughput(Device *device, uint counter, uint *kilobytes_per_s)
{
    ENTER(device);
    const char *name = counter ? "pcie_received_bytes_per_s" : "pcie_sent_bytes_per_s";
    return leave(give_uint(device, name, "", 1e-3, kilobytes_per_s));
}

int nvmlDeviceGetCurrPcieLinkGeneration(Device *device, uint *generation)
{
    ENTER(device);
    return leave(give_uint(device, "pcie_generation", "", 1, generation));
}

int nvmlDeviceGetMaxPcieLinkGeneration(Device *device, uint *generation)
{
    ENTER(device);
    return leave(give_uint(device, "pcie_generation_most", "", 1, generation));
}

int nvmlDeviceGetCurrPcieLinkWidth(Device *device, uint *lanes)
{
    ENTER(device);
    return leave(give_uint(device, "pcie_lanes", "", 1, lanes));
}
