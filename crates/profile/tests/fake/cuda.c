/* A driver that exists only in tests. What it answers is set in the environment. */
#include "cards.h"

static int garbage(void) { return number("FAKE_GARBAGE", 0); }
static int lost(int device) { return number("FAKE_LOST", -1) == device; }

/* A device beyond the list is like the last on it. */
static const struct card *card(int device) {
    const struct card *found = 0;
    for (int place = 0; place <= device && card_at("FAKE_CUDA", "4090,1g", place); place++)
        found = card_at("FAKE_CUDA", "4090,1g", place);
    return found ? found : &CARDS[0];
}

int cuInit(unsigned flags) {
    misbehave(getenv("FAKE_CUDA_DOES"));
    return flags ? 1 : number("FAKE_INIT", 0);
}

int cuDeviceGetCount(int *count) {
    *count = number("FAKE_COUNT", count_of("FAKE_CUDA", "4090,1g"));
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return number("FAKE_GONE", -1) == ordinal ? 101 : 0;
}

int cuDeviceGetName(char *name, int room, int device) {
    if (lost(device)) return 999;
    if (garbage()) {
        memset(name, 0xff, room); /* no end, not text */
        return 0;
    }
    strncpy(name, card(device)->name, room);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *total, int device) {
    if (lost(device)) return 999;
    switch (garbage()) {
    case 1: *total = 0; return 0;
    case 2: *total = (size_t)-1; return 0;
    case 3: return 1234567;
    }
    /* A board on the host's memory has all of it. */
    *total = card(device)->integrated ? (size_t)127600748 << 10 : (size_t)card(device)->total << 20;
    return 0;
}

#ifndef WITHOUT_ATTRIBUTES
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    const struct card *it = card(device);
    if (lost(device)) return 999;
    if (garbage()) {
        *value = garbage() == 1 ? -1 : 0x7fffffff;
        return garbage() == 3 ? 1234567 : 0;
    }
    switch (attribute) {
    case 16: *value = it->multiprocessors; return 0;
    case 18: *value = number("FAKE_INTEGRATED", it->integrated); return 0;
    case 33: *value = it->bus; return 0;
    case 34: *value = 0; return 0;
    case 36: *value = it->megahertz * 1000; return 0;
    case 37: *value = it->bits; return 0;
    case 50: *value = 0; return 0;
    case 75: *value = it->major; return 0;
    case 76: *value = it->minor; return 0;
    }
    return 1;
}
#endif

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    if (lost(device) || number("FAKE_NO_UUID", 0)) return 999;
    memset(uuid, garbage() ? 0 : card(device)->id, 16);
    return 0;
}

#ifndef WITHOUT_CONTEXTS
static int retained, pushed;

int cuDevicePrimaryCtxRetain(void **context, int device) {
    misbehave(getenv("FAKE_CONTEXT_DOES"));
    if (number("FAKE_RETAIN", 0)) return number("FAKE_RETAIN", 0);
    retained += 1;
    *context = (void *)(size_t)(device + 1);
    return 0;
}

int cuCtxPushCurrent_v2(void *context) {
    pushed = (int)(size_t)context;
    return 0;
}

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    if (!retained || !pushed) return 201; /* no context is current */
    *total = (size_t)24 << 30;
    *free = number("FAKE_FREE", 0) ? (size_t)99 << 30 : (size_t)pushed << 30;
    return 0;
}

int cuCtxPopCurrent_v2(void **context) {
    *context = (void *)(size_t)pushed;
    pushed = 0;
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    if (pushed || !retained) return 1;
    retained -= 1;
    return 0;
}

#ifndef WITHOUT_COPIES
#include <time.h>
static unsigned long long piece, piece_size, copied;

/* FAKE_FAILS names the call that fails, FAKE_HANGS the one that does not come back. */
static int fails(const char *call) {
    if (listed("FAKE_HANGS", call)) misbehave("hang");
    return listed("FAKE_FAILS", call) ? 719 : 0;
}

int cuMemAlloc_v2(unsigned long long *begin, size_t bytes) {
    if (!retained || !pushed || piece) return 201;
    if (fails("cuMemAlloc_v2")) return 2; /* out of memory */
    *begin = piece = 0x7f0000000000ull;
    piece_size = bytes;
    return 0;
}

int cuMemFree_v2(unsigned long long begin) {
    if (!pushed || !piece || begin != piece) return 1;
    piece = 0;
    return fails("cuMemFree_v2");
}

int cuMemsetD8_v2(unsigned long long begin, unsigned char value, size_t bytes) {
    if (begin != piece || bytes != piece_size || !value) return 1;
    return fails("cuMemsetD8_v2");
}

int cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from, size_t bytes) {
    /* Both halves lie in the piece and do not overlap. */
    if (from < piece || from + bytes > to || to + bytes > piece + piece_size) return 1;
    copied += bytes;
    return fails("cuMemcpyDtoD_v2");
}

int cuCtxSynchronize(void) {
    /* A millisecond for each 100 MB, unless it is a driver that answers before it has done anything. */
    struct timespec pause = {0, (long)(copied / 100)};
    if (!number("FAKE_AT_ONCE", 0)) nanosleep(&pause, 0);
    copied = 0;
    return fails("cuCtxSynchronize");
}
#else
static unsigned long long piece;
#endif

/* Nothing may be left when the process ends. */
__attribute__((destructor)) static void ended(void) {
    if (retained || pushed || piece) abort();
}
#endif
