/* How often each instruction of a program is executed, and how many while each of some functions is the
 * last of them that was entered: itself, and what it calls of the libraries. A plugin of QEMU's user
 * mode emulation; arguments: to=FILE of counts, of=FILE of first and last addresses. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What of the plugin interface is used: packages of QEMU come without its header. */
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
extern int qemu_plugin_version;
int qemu_plugin_version = 1;
int qemu_plugin_install(qemu_plugin_id_t, const void *, int, char **);

struct owner {
  uint64_t first, end, count;
};

struct block {
  uint64_t times;
  struct owner *owner;
  size_t count;
  struct block *next;
  uint64_t address[];
};

static struct block *blocks;
static struct owner owners[4096], *now = owners;
static size_t known;
static const char *path;

static void run(unsigned cpu, void *data)
{
  (void)cpu;
  struct block *b = data;
  ++b->times;
  if (b->owner != NULL)
    now = b->owner;
  now->count += b->count;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
  (void)id;
  size_t count = qemu_plugin_tb_n_insns(tb);
  struct block *b = calloc(1, sizeof *b + count * sizeof *b->address);
  if (b == NULL)
    abort();
  b->count = count;
  for (size_t i = 0; i < count; ++i)
    b->address[i] = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, i));
  for (size_t i = 0; i < known; ++i)
    if (owners[i].first <= b->address[0] && b->address[0] < owners[i].end)
      b->owner = &owners[i];
  b->next = blocks;
  blocks = b;
  qemu_plugin_register_vcpu_tb_exec_cb(tb, run, 0, b);
}

static void finish(qemu_plugin_id_t id, void *data)
{
  (void)id;
  (void)data;
  FILE *out = fopen(path, "w");
  if (out == NULL)
    abort();
  for (size_t i = 0; i < known; ++i)
    fprintf(out, "owner %" PRIx64 " %" PRIu64 "\n", owners[i].first, owners[i].count);
  for (struct block *b = blocks; b != NULL; b = b->next)
    for (size_t i = 0; i < b->count; ++i)
      fprintf(out, "%" PRIx64 " %" PRIu64 "\n", b->address[i], b->times);
  fclose(out);
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
  (void)info;
  if (argc != 2 || strncmp(argv[0], "to=", 3) || strncmp(argv[1], "of=", 3))
    return 1;
  path = strdup(argv[0] + 3);
  FILE *in = fopen(argv[1] + 3, "r");
  if (in == NULL)
    return 1;
  while (known < 4096 && fscanf(in, "%" SCNx64 " %" SCNx64, &owners[known].first, &owners[known].end) == 2)
    ++known;
  fclose(in);
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, finish, NULL);
  return 0;
}
