/* A libnvidia-ml.so.1 of two GPUs and more, which says what a file says.
 *
 * Each line of the file that FAKE_NVML names is "KEY VALUE", for the GPU 0 "0.KEY VALUE". It is
 * read anew whenever another file is put in its place, so that a test changes what the driver says.
 * "0.hang 1": every call about that GPU hangs. "0.lost 1": each answers that it is lost. "xid N":
 * event N is there, "xid.gpu" and "xid.code" say which. The prototypes are those of nvml.h, as far
 * as the agent calls them.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, SMALL = 7, NO_DRIVER = 9, TIMEOUT = 10, LOST = 15 };
typedef unsigned long long ull;
typedef struct { unsigned gpu, memory; } Rates;
typedef struct { ull total, free, used; } Memory;
typedef struct { unsigned version; ull total, reserved, free, used; } MemoryV2;
typedef struct { unsigned pid; ull memory; unsigned gpu_instance, compute_instance; } Process;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef union { double d; int i; unsigned ui; unsigned long ul; ull ull_; long long sll; } Value;
typedef struct { ull at; Value value; } Sample;
typedef struct { unsigned id, scope; long long at, took; int type, result; Value value; } Field;
typedef struct { void *device; ull type, data; unsigned gpu_instance, compute_instance; } Event;
typedef struct { unsigned version, supported; } GpmSupport;
typedef struct { long engine, tensor; } GpmSample;
typedef struct { unsigned id; int result; double value; char *names[3]; } GpmMetric;
typedef struct { unsigned version, count; GpmSample *first, *second; GpmMetric metrics[2]; } GpmRequest;

enum { MOST = 512 };
static struct { char name[32]; long value; } words[MOST];
static int count_of_words;
static struct stat read_from;
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

static void read_words(void) {
    struct stat now;
    const char *path = getenv("FAKE_NVML");
    if (stat(path, &now)) return;
    if (now.st_ino == read_from.st_ino && now.st_mtim.tv_sec == read_from.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == read_from.st_mtim.tv_nsec) return;
    FILE *file = fopen(path, "r");
    count_of_words = 0;
    while (count_of_words < MOST && fscanf(file, "%31s %ld", words[count_of_words].name,
                                           &words[count_of_words].value) == 2)
        count_of_words++;
    fclose(file);
    read_from = now;
}

static long number(const char *key, long otherwise) {
    pthread_mutex_lock(&reading);
    read_words();
    for (int at = count_of_words - 1; at >= 0; at--)
        if (!strcmp(words[at].name, key)) {
            otherwise = words[at].value;
            break;
        }
    pthread_mutex_unlock(&reading);
    return otherwise;
}

static long of(void *device, const char *key, long otherwise) {
    char name[64];
    snprintf(name, sizeof name, "%ld.%s", (long)device - 1, key);
    return number(name, otherwise);
}

static int there(void *device) {
    while (of(device, "hang", 0)) usleep(10000);
    return of(device, "lost", 0) ? LOST : OK;
}

static int get(void *device, const char *key, long otherwise, unsigned *to) {
    int result = there(device);
    long value = of(device, key, otherwise);
    if (result == OK && value < 0) return UNSUPPORTED;
    *to = value;
    return result;
}

int nvmlInitWithFlags(unsigned flags) { return number("no_driver", 0) ? NO_DRIVER : OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return "an error of the fake library"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = number("count", 2); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(long)(index + 1);
    return there(*device);
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
    snprintf(text, length, "GPU-%ld", (long)device - 1);
    return there(device);
}
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later) {
    *now = *later = of(device, "mig", 0);
    return there(device);
}
int nvmlDeviceGetName(void *device, char *text, unsigned length) {
    snprintf(text, length, "NVIDIA H100 80GB HBM3");
    return there(device);
}
int nvmlDeviceGetPciInfo_v3(void *device, Pci *to) {
    memset(to, 0, sizeof *to);
    to->bus = 0x3b + (long)device - 1;
    snprintf(to->bus_id, sizeof to->bus_id, "00000000:%02X:00.0", to->bus);
    return there(device);
}
int nvmlDeviceGetUtilizationRates(void *device, Rates *to) {
    to->gpu = of(device, "use", 0);
    to->memory = of(device, "memory_use", 0);
    return there(device);
}
int nvmlDeviceGetSamples(void *device, int kind, ull since, int *type, unsigned *count, Sample *to) {
    int result = there(device);
    long first = of(device, "sample", -1);
    if (result != OK) return result;
    if (first < 0) return UNSUPPORTED;
    *type = 1;
    *count = 2;
    for (unsigned at = 0; to && at < 2; at++) {
        to[at].at = since + at + 1;
        to[at].value.ui = first + 10 * at + (since == 2 ? 20 : 0); /* after those two */
    }
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(void *device, MemoryV2 *to) {
    if (of(device, "old_memory", 0)) return UNSUPPORTED;
    to->total = 85899345920ull;
    to->reserved = 645922816ull;
    to->used = (ull)of(device, "memory_mb", 0) * 1000000;
    to->free = to->total - to->used - to->reserved;
    return there(device);
}
int nvmlDeviceGetMemoryInfo(void *device, Memory *to) {
    to->total = 85899345920ull;
    to->used = (ull)of(device, "memory_mb", 0) * 1000000 + 645922816ull;
    to->free = to->total - to->used;
    return there(device);
}
int nvmlDeviceGetEncoderUtilization(void *device, unsigned *to, unsigned *us) {
    *us = 167000;
    return get(device, "encoder", -1, to);
}
int nvmlDeviceGetDecoderUtilization(void *device, unsigned *to, unsigned *us) {
    *us = 167000;
    return get(device, "decoder", -1, to);
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *to) { return get(device, "power_mw", 70000, to); }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *to) { return get(device, "limit_mw", 700000, to); }
int nvmlDeviceGetTotalEnergyConsumption(void *device, ull *to) {
    *to = of(device, "energy_mj", 1000);
    return there(device);
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *to) { return get(device, "heat", 30, to); }
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *to) {
    return get(device, kind == 1 ? "sm_mhz" : "memory_mhz", 1980, to);
}
int nvmlDeviceGetCurrentClocksEventReasons(void *device, ull *to) {
    *to = of(device, "throttle", 0);
    return there(device);
}
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, ull *to) {
    char key[32];
    snprintf(key, sizeof key, "ecc.%d.%d", kind, counter);
    *to = of(device, key, 0);
    return there(device);
}
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed) {
    *corrected = of(device, "remap.corrected", 0);
    *uncorrected = of(device, "remap.uncorrected", 0);
    *pending = of(device, "remap.pending", 0);
    *failed = of(device, "remap.failed", 0);
    return there(device);
}
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *to) { return get(device, "pcie", 5, to); }
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *to) { return get(device, "lanes", 16, to); }
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *to) { return get(device, "pcie_most", 5, to); }
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *to) { return get(device, "lanes_most", 16, to); }
int nvmlDeviceGetPcieReplayCounter(void *device, unsigned *to) { return get(device, "replays", 0, to); }
int nvmlDeviceGetPcieThroughput(void *device, int kind, unsigned *to) { return get(device, "pcie_kb", -1, to); }
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *to) {
    char key[32];
    snprintf(key, sizeof key, "link.%u", link);
    return get(device, key, 1, to);
}
int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned link, int counter, ull *to) {
    char key[32];
    snprintf(key, sizeof key, "link.%u.%d", link, counter);
    *to = of(device, key, 0);
    return there(device);
}
int nvmlDeviceGetFieldValues(void *device, int count, Field *fields) {
    for (int at = 0; at < count; at++) {
        char key[32];
        int of_all = fields[at].scope == ~0u; /* links: their sum */
        snprintf(key, sizeof key, of_all ? "field.%u.all" : "field.%u", fields[at].id);
        long value = of(device, key, -1);
        fields[at].type = 3;
        fields[at].result = value < 0 ? UNSUPPORTED : OK;
        fields[at].value.ull_ = value;
    }
    return there(device);
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *to) {
    int result = there(device);
    long pid = of(device, "pid", 0);
    if (result != OK) return result;
    if (!to) {
        *count = pid ? 1 : 0;
        return pid ? SMALL : OK;
    }
    *count = 1;
    *to = (Process){.pid = pid, .memory = 1000000, .gpu_instance = -1, .compute_instance = -1};
    return OK;
}
int nvmlGpmQueryDeviceSupport(void *device, GpmSupport *to) {
    to->supported = of(device, "gpm.engine", -1) >= 0;
    return there(device);
}
int nvmlGpmSampleAlloc(void **sample) { *sample = calloc(1, sizeof(GpmSample)); return OK; }
int nvmlGpmSampleGet(void *device, GpmSample *to) {
    to->engine = of(device, "gpm.engine", -1);
    to->tensor = of(device, "gpm.tensor", -1);
    return there(device);
}
int nvmlGpmMetricsGet(GpmRequest *to) { /* percents: the mean of two samples */
    for (unsigned at = 0; at < to->count; at++) {
        int is_engine = to->metrics[at].id == 1;
        long first = is_engine ? to->first->engine : to->first->tensor;
        long second = is_engine ? to->second->engine : to->second->tensor;
        to->metrics[at].result = second < 0 ? UNSUPPORTED : OK;
        to->metrics[at].value = (first + second) / 2.0;
    }
    return OK;
}
int nvmlEventSetCreate(void **set) { *set = (void *)1; return OK; }
int nvmlDeviceRegisterEvents(void *device, ull types, void *set) { return there(device); }
int nvmlEventSetWait_v2(void *set, Event *to, unsigned milliseconds) {
    static long told = 0;
    long pause = number("pause_ms", 10);
    for (unsigned waited = 0; waited < milliseconds; waited += pause) {
        if (number("xid", 0) > told) {
            told = number("xid", 0);
            memset(to, 0, sizeof *to);
            to->device = (void *)(number("xid.gpu", 0) + 1);
            to->type = 8;
            to->data = number("xid.code", 0);
            return OK;
        }
        usleep(1000 * pause);
    }
    return TIMEOUT;
}
