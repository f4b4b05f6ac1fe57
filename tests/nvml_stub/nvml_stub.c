/* A stand-in for libnvidia-ml.so.1: the calls that the monitor makes through pynvml, answered from a text file.
 *
 * The file is named by NVML_STUB_WORLD and read anew at every call, so that a test changes the world while a
 * monitor runs. One `key=value` a line; a key that is not there is something the driver cannot tell
 * (NVML_ERROR_NOT_SUPPORTED).
 *
 *   driver=570.86.15
 *   count=2                                   what the driver lists
 *   card0.uuid=GPU-...       card0.name=Tesla T4
 *   card0.total=... card0.reserved=... card0.used=...        bytes
 *   card0.mig=1   card0.util=37   card0.power_mw=70123   card0.temperature=55
 *   card0.processes=4242:1073741824,77:?      pid:bytes, ? = the driver does not know; empty = nobody
 *   card0.samples=4242:35                     pid:per cent of the card
 *   error.FUNCTION=CODE                       that call fails
 *   card0.error=CODE     card0.error.FUNCTION=CODE           every call on that card fails, or one
 *   hang.FUNCTION=SECONDS                     that call does not return before, or until the line is gone
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, BAD_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };

#define MAX_CARDS 64
#define NOT_AVAILABLE 0xFFFFFFFFFFFFFFFFULL

typedef struct { int index; } Card;
typedef unsigned long long u64;
typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned version; u64 total, reserved, free, used; } MemoryV2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; } Process;
typedef struct { unsigned pid; u64 at; unsigned sm, memory, encoder, decoder; } Sample;
typedef struct { unsigned version, sensor; int celsius; } Temperature;

static Card cards[MAX_CARDS];
static int sessions = 0;

/* The value of a key, as the file has it right now. 0 when there is no such line. */
static int look(const char *key, char *value, size_t size) {
  const char *path = getenv("NVML_STUB_WORLD");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[8192];
  int found = 0;
  if (!file) return 0;
  while (!found && fgets(line, sizeof line, file)) {
    char *equals = strchr(line, '=');
    if (!equals || line[0] == '#') continue;
    *equals = 0;
    if (strcmp(line, key)) continue;
    equals[1 + strcspn(equals + 1, "\r\n")] = 0;
    snprintf(value, size, "%s", equals + 1);
    found = 1;
  }
  fclose(file);
  return found;
}

static int number(const char *key, u64 *value) {
  char text[64];
  if (!look(key, text, sizeof text)) return 0;
  *value = strtoull(text, NULL, 10);
  return 1;
}

static int of_card(const Card *card, const char *what, char *value, size_t size) {
  char key[256];
  snprintf(key, sizeof key, "card%d.%s", card->index, what);
  return look(key, value, size);
}

static int card_number(const Card *card, const char *what, u64 *value) {
  char key[256];
  snprintf(key, sizeof key, "card%d.%s", card->index, what);
  return number(key, value);
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void hang(const char *function) {
  char key[256], text[64];
  double start = seconds();
  snprintf(key, sizeof key, "hang.%s", function);
  while (look(key, text, sizeof text) && seconds() - start < atof(text)) usleep(10000);
}

/* What every call does first: hang if told so, then the errors of the world. card may be NULL. */
static int enter(const char *function, const Card *card) {
  char key[256];
  u64 code;
  hang(function);
  snprintf(key, sizeof key, "error.%s", function);
  if (number(key, &code)) return (int)code;
  if (!sessions && strcmp(function, "nvmlInitWithFlags")) return UNINITIALIZED;
  if (!card) return OK;
  snprintf(key, sizeof key, "error.%s", function);
  if (card_number(card, "error", &code) || card_number(card, key, &code)) return (int)code;
  return OK;
}

#define ENTER(card)                                   \
  do {                                                \
    int refused = enter(__func__, card);              \
    if (refused) return refused;                      \
  } while (0)

static int give_text(const Card *card, const char *what, char *out, unsigned size) {
  return of_card(card, what, out, size) ? OK : NOT_SUPPORTED;
}

static int give_number(const Card *card, const char *what, unsigned *out) {
  u64 value;
  if (!card_number(card, what, &value)) return NOT_SUPPORTED;
  *out = (unsigned)value;
  return OK;
}

const char *nvmlErrorString(int code) {
  switch (code) {
    case LOST: return "GPU is lost";
    case NOT_SUPPORTED: return "Not Supported";
    case UNINITIALIZED: return "Uninitialized";
    default: return "an error of the stand-in driver";
  }
}

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  ENTER(NULL);
  sessions++;
  return OK;
}

int nvmlShutdown(void) {
  ENTER(NULL);
  sessions--;
  return OK;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
  ENTER(NULL);
  return look("driver", out, size) ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  u64 value;
  ENTER(NULL);
  *count = number("count", &value) ? (unsigned)value : 0;
  return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Card **card) {
  if (index >= MAX_CARDS) return BAD_ARGUMENT;
  cards[index].index = (int)index;
  ENTER(&cards[index]);
  *card = &cards[index];
  return OK;
}

int nvmlDeviceGetUUID(Card *card, char *out, unsigned size) {
  ENTER(card);
  return give_text(card, "uuid", out, size);
}

int nvmlDeviceGetName(Card *card, char *out, unsigned size) {
  ENTER(card);
  return give_text(card, "name", out, size);
}

int nvmlDeviceGetMemoryInfo(Card *card, Memory *out) {
  u64 reserved = 0;
  ENTER(card);
  if (!card_number(card, "total", &out->total)) return NOT_SUPPORTED;
  card_number(card, "reserved", &reserved);
  out->used = 0;
  card_number(card, "used", &out->used);
  out->used += reserved; /* version 1 counts the driver's own memory as used */
  out->free = out->total - out->used;
  return OK;
}

int nvmlDeviceGetMemoryInfo_v2(Card *card, MemoryV2 *out) {
  ENTER(card);
  if (out->version != (sizeof(MemoryV2) | 2u << 24)) return BAD_ARGUMENT;
  if (!card_number(card, "total", &out->total)) return NOT_SUPPORTED;
  out->reserved = out->used = 0;
  card_number(card, "reserved", &out->reserved);
  card_number(card, "used", &out->used);
  out->free = out->total - out->reserved - out->used;
  return OK;
}

int nvmlDeviceGetMigMode(Card *card, unsigned *current, unsigned *pending) {
  ENTER(card);
  *pending = 0;
  return give_number(card, "mig", current);
}

int nvmlDeviceGetUtilizationRates(Card *card, Utilization *out) {
  ENTER(card);
  out->memory = 0;
  return give_number(card, "util", &out->gpu);
}

int nvmlDeviceGetPowerUsage(Card *card, unsigned *milliwatts) {
  ENTER(card);
  return give_number(card, "power_mw", milliwatts);
}

int nvmlDeviceGetTemperature(Card *card, unsigned sensor, unsigned *celsius) {
  (void)sensor;
  ENTER(card);
  return give_number(card, "temperature", celsius);
}

int nvmlDeviceGetTemperatureV(Card *card, Temperature *out) {
  ENTER(card);
  return give_number(card, "temperature", (unsigned *)&out->celsius);
}

/* Walk over `pid:value,pid:value`; each is called when there is room. The number of entries comes back. */
static unsigned pairs(char *text, void (*each)(unsigned at, unsigned pid, const char *value, void *out), void *out,
                      unsigned room) {
  unsigned n = 0;
  char *rest = NULL;
  for (char *pair = strtok_r(text, ",", &rest); pair; pair = strtok_r(NULL, ",", &rest)) {
    char *colon = strchr(pair, ':');
    if (n < room) each(n, (unsigned)strtoul(pair, NULL, 10), colon ? colon + 1 : "?", out);
    n++;
  }
  return n;
}

static void put_process(unsigned at, unsigned pid, const char *value, void *out) {
  Process *process = (Process *)out + at;
  memset(process, 0, sizeof *process);
  process->pid = pid;
  process->bytes = *value == '?' ? NOT_AVAILABLE : strtoull(value, NULL, 10);
}

static void put_sample(unsigned at, unsigned pid, const char *value, void *out) {
  Sample *sample = (Sample *)out + at;
  memset(sample, 0, sizeof *sample);
  sample->pid = pid;
  sample->at = (u64)time(NULL) * 1000000ULL;
  sample->sm = (unsigned)strtoul(value, NULL, 10);
}

static int processes(const Card *card, const char *what, unsigned *count, Process *out) {
  char text[8192];
  unsigned room = out ? *count : 0;
  if (!of_card(card, what, text, sizeof text)) return NOT_SUPPORTED;
  *count = pairs(text, put_process, out, room);
  return *count > room ? TOO_SMALL : OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Card *card, unsigned *count, Process *out) {
  ENTER(card);
  return processes(card, "processes", count, out);
}

int nvmlDeviceGetComputeRunningProcesses_v2(Card *card, unsigned *count, Process *out) {
  ENTER(card);
  return processes(card, "processes", count, out);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(Card *card, unsigned *count, Process *out) {
  ENTER(card);
  return processes(card, "mps_processes", count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Card *card, unsigned *count, Process *out) {
  ENTER(card);
  return processes(card, "graphics_processes", count, out);
}

int nvmlDeviceGetProcessUtilization(Card *card, Sample *out, unsigned *count, u64 since) {
  char text[8192];
  unsigned room = out ? *count : 0;
  (void)since;
  ENTER(card);
  if (!of_card(card, "samples", text, sizeof text)) return NOT_SUPPORTED;
  *count = pairs(text, put_sample, out, room);
  if (!*count) return NOT_FOUND;
  return *count > room ? TOO_SMALL : OK;
}
