/* A management library that exists only in tests. What it answers is set in the environment. */
#include <stdio.h>

#include "cards.h"

enum { NO = 3, NOT_FOUND = 6, SMALL = 7, LOST = 15 };

static int started;

static int garbage(void) { return number("FAKE_NVML_GARBAGE", 0); }

int nvmlInit_v2(void) {
    misbehave(getenv("FAKE_NVML_DOES"));
    if (number("FAKE_NVML_INIT", 0)) return number("FAKE_NVML_INIT", 0);
    started += 1;
    return 0;
}

#ifndef WITHOUT_SHUTDOWN
int nvmlShutdown(void) {
    if (!started) abort(); /* ended more often than started */
    started -= 1;
    return 0;
}
#endif

/* As often as it was started it must have been ended when the process ends. */
__attribute__((destructor)) static void ended(void) {
    if (started) abort();
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = number("FAKE_NVML_COUNT", count_of("FAKE_NVML", "4090"));
    return started ? 0 : 1;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, const struct card **device) {
    *device = card_at("FAKE_NVML", "4090", index);
    if (!*device) return 2;
    return listed("FAKE_NVML_LOST", (*device)->key) ? LOST : 0;
}

static int text(char *out, unsigned room, const char *it) {
    if (garbage()) {
        memset(out, 0xff, room); /* no end, not text */
        return 0;
    }
    snprintf(out, room, "%s", it);
    return 0;
}

int nvmlDeviceGetUUID(const struct card *device, char *out, unsigned room) {
    char it[64] = "";
    for (int n = 0; n < 16; n++)
        sprintf(it + strlen(it), "%s%02x", n == 4 || n == 6 || n == 8 || n == 10 ? "-" : "", device->id);
    char whole[80];
    snprintf(whole, sizeof whole, "%s-%s", device->of ? "MIG" : "GPU", it);
    return text(out, room, whole);
}

int nvmlDeviceGetName(const struct card *device, char *out, unsigned room) {
    return text(out, room, device->name);
}

struct pci {
    char old[16];
    unsigned domain, bus, device, model, system;
    char id[32];
};

int nvmlDeviceGetPciInfo_v3(const struct card *device, struct pci *pci) {
    if (device->of) return 2;
    memset(pci, garbage() ? 0xff : 0, sizeof *pci);
    if (!garbage()) pci->bus = device->bus;
    return 0;
}

/* 1: nothing; 2: enormous; 3: more free than there is; 4: a code that no header knows. */
static int amounts(const struct card *device, unsigned long long *total, unsigned long long *free) {
    if (device->integrated || listed("FAKE_NVML_NO_MEMORY", device->key)) return NO;
    *total = device->total << 20;
    *free = (device->total - device->used) << 20;
    switch (garbage()) {
    case 1: *total = 0; break;
    case 2: *total = *free = -1; break;
    case 3: *free = *total + 1; break;
    case 4: return 1234567;
    }
    return 0;
}

#ifndef WITHOUT_MEMORY_V2
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo_v2(const struct card *device, struct memory_v2 *memory) {
    if (memory->version != (sizeof *memory | 2 << 24)) return 25;
    if (number("FAKE_NVML_OLD", 0)) return 25;
    memory->reserved = 1 << 20;
    memory->used = (device->used << 20) - memory->reserved;
    return amounts(device, &memory->total, &memory->free);
}
#endif

struct memory {
    unsigned long long total, free, used;
};

int nvmlDeviceGetMemoryInfo(const struct card *device, struct memory *memory) {
    memory->used = device->used << 20;
    return amounts(device, &memory->total, &memory->free);
}

int nvmlDeviceGetUtilizationRates(const struct card *device, unsigned rates[2]) {
    if (device->of) return NO;
    rates[0] = garbage() ? 101 : 37;
    rates[1] = 5;
    return 0;
}

/* A card is divided when it is named in FAKE_MIG; its slices are those of FAKE_SLICES. */
int nvmlDeviceGetMigMode(const struct card *device, unsigned *now, unsigned *later) {
    *now = *later = listed("FAKE_MIG", device->key);
    return strcmp(device->key, "a100") ? NO : 0;
}

int nvmlDeviceGetMaxMigDeviceCount(const struct card *device, unsigned *count) {
    (void)device;
    *count = number("FAKE_MOST_SLICES", 7);
    return 0;
}

/* Every other place is empty. */
int nvmlDeviceGetMigDeviceHandleByIndex(const struct card *device, unsigned index, const struct card **slice) {
    const struct card *it = index % 2 ? 0 : card_at("FAKE_SLICES", "1g,2g", index / 2);
    *slice = it;
    return it && !strcmp(it->of, device->key) ? 0 : NOT_FOUND;
}

struct attributes {
    unsigned multiprocessors, others[7];
    unsigned long long megabytes;
};

int nvmlDeviceGetAttributes_v2(const struct card *device, struct attributes *told) {
    told->multiprocessors = device->multiprocessors;
    return device->of ? 0 : NO;
}

int nvmlDeviceGetMaxClockInfo(const struct card *device, int kind, unsigned *megahertz) {
    *megahertz = garbage() ? ~0u : (unsigned)device->megahertz;
    return kind == 2 ? 0 : 2;
}

int nvmlDeviceGetMemoryBusWidth(const struct card *device, unsigned *bits) {
    *bits = garbage() ? ~0u : (unsigned)device->bits;
    return device->bits ? 0 : NO;
}

int nvmlDeviceGetCudaComputeCapability(const struct card *device, int *major, int *minor) {
    *major = garbage() ? -1 : device->major;
    *minor = device->minor;
    return 0;
}

struct process {
    unsigned pid;
    unsigned long long used;
    unsigned instance, part;
};

/* The first process is FAKE_PID; there are so many as FAKE_PROCESSES says, the last of unknown size unless
   FAKE_PROCESSES_KNOWN is set. */
static int processes(unsigned *count, struct process *infos) {
    unsigned room = *count, all = number("FAKE_PROCESSES", 2);
    *count = all;
    if (all > room && number("FAKE_PROCESSES_FIT", 0) == 0) return SMALL;
    for (unsigned n = 0; n < all && n < room; n++) {
        infos[n].pid = number("FAKE_PID", 1000) + n;
        infos[n].used = n + 1 == all && !number("FAKE_PROCESSES_KNOWN", 0) ? ~0ull : 1ull << 30;
    }
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(const struct card *device, unsigned *count, struct process *infos) {
    return device->of ? NO : processes(count, infos);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(const struct card *device, unsigned *count, struct process *infos) {
    (void)device, (void)count, (void)infos;
    return NO;
}
