/* A stand-in for libnvidia-ml.so.1: the calls that the monitor makes through pynvml, answered from a text file.
 *
 * The file is named by NVML_STUB_WORLD and read anew at every call, so that a test changes the world while a
 * monitor runs. One `key=value` a line; a key that is not there is something the driver cannot tell
 * (NVML_ERROR_NOT_SUPPORTED).
 *
 *   driver=570.86.15         cuda=13000
 *   count=2                                   what the driver lists
 *   card0.uuid=GPU-...       card0.name=Tesla T4
 *   card0.total=... card0.reserved=... card0.used=...        bytes
 *   card0.mig=1   card0.util=37   card0.power_mw=70123   card0.temperature=55
 *   card0.processes=4242:1073741824,77:?      pid:bytes, ? = the driver does not know; empty = nobody
 *   card0.samples=4242:35                     pid:per cent of the card
 *   card0.clock0=1410    card0.clock2=1593                   MHz of clock domain 0 (graphics), 1 (SM), 2 (memory)
 *   card0.ecc0=3         card0.ecc1=1                        errors: corrected, uncorrected
 *   card0.remapped=0,1,1,0                    rows: corrected, uncorrected, pending, failed
 *   card0.recovery=1                          the recovery action that the driver asks for
 *   card0.bus=00000000:07:00.0                card0.numa=1
 *   card0.nvlinks=switch,-,00000000:0A:00.0   far end of link 0, 1, ...; - = not active
 *   card0.near1=20                            what joins card 0 and card 1 on PCIe (NVML_TOPOLOGY_...)
 *   card0.mig_most=7     card0.mig2.uuid=MIG-...             instances; with name, total, used, slot, processes
 *   card0.events=8                            event types that it has
 *   event3=0:8:79        event4=0:8:94:2      happens once: card:type:data[:slot]; numbered from 1 on
 *   error.FUNCTION=CODE                       that call fails
 *   card0.error=CODE     card0.error.FUNCTION=CODE           every call on that card fails, or one
 *   hang.FUNCTION=SECONDS                     that call does not return before, or until the line is gone
 *   card0.hang=SECONDS   card0.hang.FUNCTION=SECONDS         every call on that card, or one
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, BAD_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7,
       TIMEOUT = 10, LOST = 15 };

#define MAX_CARDS 64
#define MAX_INSTANCES 16
#define WHOLE -1
#define ANY_SLOT 0xFFFFFFFFu
#define NOT_AVAILABLE 0xFFFFFFFFFFFFFFFFULL

typedef struct { int index, instance; } Card; /* instance: WHOLE, or which of its MIG instances */
typedef unsigned long long u64;
typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned version; u64 total, reserved, free, used; } MemoryV2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; } Process;
typedef struct { unsigned pid; u64 at; unsigned sm, memory, encoder, decoder; } Sample;
typedef struct { unsigned version, sensor; int celsius; } Temperature;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { unsigned id, scope; long long at, latency; unsigned type; int code; u64 value; } Field;
typedef struct { Card *card; u64 type, data; unsigned slot, compute_instance; } Event;
typedef struct { Card *cards[MAX_CARDS]; unsigned long seen; } EventSet;

static Card cards[MAX_CARDS], instances[MAX_CARDS][MAX_INSTANCES];
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
  if (card->instance == WHOLE) snprintf(key, sizeof key, "card%d.%s", card->index, what);
  else snprintf(key, sizeof key, "card%d.mig%d.%s", card->index, card->instance, what);
  return look(key, value, size);
}

static int card_number(const Card *card, const char *what, u64 *value) {
  char text[64];
  if (!of_card(card, what, text, sizeof text)) return 0;
  *value = strtoull(text, NULL, 10);
  return 1;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void hang(const char *key) {
  char text[64];
  double start = seconds();
  while (look(key, text, sizeof text) && seconds() - start < atof(text)) usleep(10000);
}

/* A key of the whole card, also for its instances: what happens to the card happens to them. */
static const char *key_of(char *key, size_t size, const Card *card, const char *what, const char *function) {
  snprintf(key, size, "card%d.%s%s%s", card->index, what, *function ? "." : "", function);
  return key;
}

/* What every call does first: hang if told so, then the errors of the world. card may be NULL. */
static int enter(const char *function, const Card *card) {
  char key[256];
  u64 code;
  snprintf(key, sizeof key, "hang.%s", function);
  hang(key);
  if (card) hang(key_of(key, sizeof key, card, "hang", ""));
  if (card) hang(key_of(key, sizeof key, card, "hang", function));
  snprintf(key, sizeof key, "error.%s", function);
  if (number(key, &code)) return (int)code;
  if (!sessions && strcmp(function, "nvmlInitWithFlags")) return UNINITIALIZED;
  if (!card) return OK;
  if (number(key_of(key, sizeof key, card, "error", ""), &code)) return (int)code;
  if (number(key_of(key, sizeof key, card, "error", function), &code)) return (int)code;
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
    case TIMEOUT: return "Timeout";
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

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  u64 value;
  ENTER(NULL);
  if (!number("cuda", &value)) return NOT_SUPPORTED;
  *version = (int)value;
  return OK;
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
  cards[index].instance = WHOLE;
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

int nvmlDeviceGetClockInfo(Card *card, unsigned domain, unsigned *mhz) {
  char what[32];
  ENTER(card);
  snprintf(what, sizeof what, "clock%u", domain);
  return give_number(card, what, mhz);
}

int nvmlDeviceGetTotalEccErrors(Card *card, unsigned kind, unsigned since, u64 *count) {
  char what[32];
  (void)since;
  ENTER(card);
  snprintf(what, sizeof what, "ecc%u", kind);
  return card_number(card, what, count) ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetRemappedRows(Card *card, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
  char text[64];
  ENTER(card);
  if (!of_card(card, "remapped", text, sizeof text)) return NOT_SUPPORTED;
  return sscanf(text, "%u,%u,%u,%u", corrected, uncorrected, pending, failed) == 4 ? OK : NOT_SUPPORTED;
}

/* The error of a field is inside the answer, as the real library has it. */
int nvmlDeviceGetFieldValues(Card *card, int count, Field *fields) {
  enum { RECOVERY_ACTION = 230 };
  ENTER(card);
  for (Field *field = fields; field < fields + count; field++)
    field->code = field->id == RECOVERY_ACTION && card_number(card, "recovery", &field->value) ? OK : NOT_SUPPORTED;
  return OK;
}

/* --- how cards are wired ------------------------------------------------------------------------------------------ */

int nvmlDeviceGetPciInfo_v3(Card *card, Pci *out) {
  ENTER(card);
  memset(out, 0, sizeof *out);
  return give_text(card, "bus", out->bus_id, sizeof out->bus_id);
}

/* The far end of a link, or 0 when the card has no such link. */
static int far_end(const Card *card, unsigned link, char *out, size_t size) {
  char text[1024], *rest = NULL;
  unsigned n = 0;
  if (!of_card(card, "nvlinks", text, sizeof text)) return 0;
  for (char *end = strtok_r(text, ",", &rest); end; end = strtok_r(NULL, ",", &rest))
    if (n++ == link) return snprintf(out, size, "%s", end) > 0;
  return 0;
}

int nvmlDeviceGetNvLinkState(Card *card, unsigned link, unsigned *active) {
  char end[64];
  ENTER(card);
  if (!far_end(card, link, end, sizeof end)) return of_card(card, "nvlinks", end, 1) ? BAD_ARGUMENT : NOT_SUPPORTED;
  *active = strcmp(end, "-") != 0;
  return OK;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(Card *card, unsigned link, unsigned *type) {
  char end[64];
  ENTER(card);
  if (!far_end(card, link, end, sizeof end)) return BAD_ARGUMENT;
  *type = strcmp(end, "switch") ? 0 : 2;
  return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Card *card, unsigned link, Pci *out) {
  ENTER(card);
  memset(out, 0, sizeof *out);
  return far_end(card, link, out->bus_id, sizeof out->bus_id) ? OK : BAD_ARGUMENT;
}

int nvmlDeviceGetTopologyCommonAncestor(Card *one, Card *other, unsigned *level) {
  char what[32];
  ENTER(one);
  snprintf(what, sizeof what, "near%d", other->index);
  return give_number(one, what, level);
}

int nvmlDeviceGetMemoryAffinity(Card *card, unsigned words, u64 *nodes, unsigned scope) {
  u64 node;
  (void)scope;
  ENTER(card);
  if (!card_number(card, "numa", &node)) return NOT_SUPPORTED;
  for (unsigned at = 0; at < words; at++) nodes[at] = at == node / 64 ? 1ULL << node % 64 : 0;
  return OK;
}

/* --- instances ---------------------------------------------------------------------------------------------------- */

int nvmlDeviceGetMaxMigDeviceCount(Card *card, unsigned *count) {
  ENTER(card);
  return give_number(card, "mig_most", count);
}

int nvmlDeviceGetMigDeviceHandleByIndex(Card *card, unsigned index, Card **out) {
  char uuid[128];
  ENTER(card);
  if (index >= MAX_INSTANCES) return BAD_ARGUMENT;
  Card *instance = &instances[card->index][index];
  instance->index = card->index;
  instance->instance = (int)index;
  if (!of_card(instance, "uuid", uuid, sizeof uuid)) return NOT_FOUND;
  *out = instance;
  return OK;
}

int nvmlDeviceGetGpuInstanceId(Card *card, unsigned *slot) {
  ENTER(card);
  return give_number(card, "slot", slot);
}

/* --- events: what happens after a set was made is told once by it -------------------------------------------------- */

static int event_at(unsigned long at, char *text, size_t size) {
  char key[64];
  snprintf(key, sizeof key, "event%lu", at);
  return look(key, text, size);
}

int nvmlEventSetCreate(EventSet **out) {
  char text[128];
  ENTER(NULL);
  EventSet *set = calloc(1, sizeof *set);
  while (event_at(set->seen + 1, text, sizeof text)) set->seen++;
  *out = set;
  return OK;
}

int nvmlEventSetFree(EventSet *set) {
  ENTER(NULL);
  free(set);
  return OK;
}

int nvmlDeviceGetSupportedEventTypes(Card *card, u64 *types) {
  ENTER(card);
  return card_number(card, "events", types) ? OK : NOT_SUPPORTED;
}

int nvmlDeviceRegisterEvents(Card *card, u64 types, EventSet *set) {
  (void)types;
  ENTER(card);
  set->cards[card->index] = card;
  return OK;
}

int nvmlEventSetWait_v2(EventSet *set, Event *out, unsigned milliseconds) {
  char text[128];
  double start = seconds();
  ENTER(NULL);
  for (; seconds() - start < milliseconds / 1000.0; usleep(2000)) {
    unsigned card, slot = ANY_SLOT;
    if (!event_at(set->seen + 1, text, sizeof text)) continue;
    set->seen++;
    if (sscanf(text, "%u:%llu:%llu:%u", &card, &out->type, &out->data, &slot) < 3) continue;
    if (card >= MAX_CARDS || !set->cards[card]) continue;
    out->card = set->cards[card];
    out->slot = slot;
    return OK;
  }
  return TIMEOUT;
}
