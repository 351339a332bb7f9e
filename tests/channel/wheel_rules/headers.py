"""Mutants of an ELF file's headers, and how a loader sees them: a model, and glibc itself."""

import os
import re
import struct
import subprocess
import sys
from collections import Counter

from tests.tools.made.elves import Edit

LOAD, DYNAMIC, TLS, STACK, RELRO = 1, 2, 7, 0x6474E551, 0x6474E552
# The stand-in's code only reports the contents of memory.
HOST = """
#include <stddef.h>
#include <string.h>
extern void torch_library_impl(unsigned long);
extern int hipModuleLoadData(void **, const void *) __attribute__((weak));
extern const unsigned char first[], second[];
extern int a_name(void) __asm__("evil.so") __attribute__((weak));  // for tags to name
static _Thread_local volatile unsigned long kept = 7, zero;
static unsigned long one(unsigned long x) { return 3 * x + 1 + zero; }
static unsigned long two(unsigned long x) { return x ^ kept; }
static unsigned long (*volatile const steps[])(unsigned long) = {one, two};
static volatile unsigned long counter = 5, unset[600];
__attribute__((constructor)) static void start(void) {
  unsigned long sum = counter + unset[599];
  for (size_t i = 0; i < 4096; ++i) sum = steps[i % 2](sum * 31 + first[i] + second[i]);
  char copy[64];
  memset(copy, (int)strlen("word"), sizeof copy);
  if (hipModuleLoadData || a_name) sum += copy[5];
  torch_library_impl(sum);
}
"""
DEVICE = """
.section .hip_fatbin, "a", @progbits
.p2align 12
.globl first, second
.hidden first, second
first: .incbin "first"
.p2align 12
second: .incbin "second"
.section .note.GNU-stack, "", @progbits
"""
TORCH = """
unsigned long seen;
void torch_library_impl(unsigned long sum) { seen = seen * 31 + sum; }
"""
# Reports for each file: whether glibc loads it, what its constructor saw, loaded dependencies, mappings.
DRIVER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
extern unsigned long seen;
static void told(const char *text) {
  for (; *text; ++text) putchar(*text >= ' ' && *text <= '~' ? *text : '?');
}
static const char *base(const char *path) {
  const char *end = strrchr(path, '/');
  return end ? end + 1 : path;
}
static int others(struct dl_phdr_info *info, size_t size, void *mine) {
  (void)size;
  if (strcmp(info->dlpi_name, mine) && *info->dlpi_name) { putchar(' '); told(base(info->dlpi_name)); }
  return 0;
}
static void mapped(const char *path) {
  char line[512], access[8];
  unsigned long start, end, offset, first = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps)) {
    sscanf(line, "%lx-%lx %7s %lx", &start, &end, access, &offset);
    if (strstr(line, "[stack]")) printf(" stack %s", access);
    if (!strstr(line, path)) continue;
    if (!first) first = start;
    printf(" %lx-%lx:%s@%lx", start - first, end - first, access, offset);
  }
}
int main(int count, char **paths) {
  for (int i = 1; i < count; ++i) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
      alarm(20);
      void *found = dlopen(paths[i], RTLD_NOW | RTLD_GLOBAL);
      if (!found) { printf("refused "); told(dlerror()); fflush(stdout); _exit(0); }
      printf("loaded %lx", seen);
      dl_iterate_phdr(others, paths[i]);
      mapped(paths[i]);
      printf(" closed %d", dlclose(found));
      fflush(stdout);
      _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    printf(status ? "crashed\n" : "\n");
  }
  return 0;
}
"""


def zig(folder, *arguments):
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.28", "-O1"]
    subprocess.run([*command, *arguments], cwd=folder, check=True, capture_output=True)


def make_stand_in(folder, bundles):
    """A library with all parts of ours, linked by the same linker, in ``folder``. Returns its bytes."""
    for name, data in zip(("first", "second"), bundles, strict=True):
        (folder / name).write_bytes(data)
    (folder / "host.c").write_text(HOST)
    (folder / "device.S").write_text(DEVICE)
    (folder / "local.map").write_text("{ local: *; };\n")
    (folder / "torch.c").write_text(TORCH)
    (folder / "evil.c").write_text("__attribute__((constructor)) static void evil(void) {}\n")
    (folder / "driver.c").write_text(DRIVER)
    zig(folder, "-shared", "-fPIC", "torch.c", "-Wl,-soname,libtorch.so", "-o", "libtorch.so")
    zig(folder, "-shared", "-fPIC", "evil.c", "-Wl,-soname,evil.so", "-o", "evil.so")
    zig(folder, "driver.c", "-L.", "-ltorch", "-ldl", "-o", "driver")
    zig(
        folder, "-shared", "-fPIC", "-Wl,--version-script=local.map", "-Wl,--build-id=none",
        "-Wl,--no-as-needed", "host.c", "device.S", "-L.", "-ltorch", "-o", "stand_in.so",
    )  # fmt: skip
    return (folder / "stand_in.so").read_bytes()


def glibc_verdicts(folder, files):
    """glibc's view of each file: whether it is loaded, its mappings and its dependencies."""
    paths = []
    for number, data in enumerate(files):
        paths.append(folder / f"mutant{number}.so")
        paths[-1].write_bytes(data)
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    command = [folder / "driver", *paths]
    done = subprocess.run(command, env=env, capture_output=True, check=True, errors="replace", text=True)
    for path in paths:
        path.unlink()
    lines = done.stdout.splitlines()
    assert len(lines) == len(files)
    return [re.sub(r"mutant\d+\.so", "file", line) for line in lines]


def model(data):
    """A loader's view of ``data``: memory (without its headers), dynamic tags, other segments."""
    edit = Edit(data)
    head = edit.read(0, Edit.HEADER)

    def of(kind):
        return [edit.read(at, Edit.SEGMENT) for at in edit.segment_places(kind)]

    [table] = of(DYNAMIC)
    headers = head["segments_at"] + 56 * head["segment_count"]
    memory, rows = [], []
    for one in of(LOAD):
        content = bytearray(data[one["offset"] : one["offset"] + one["file_bytes"]])
        if one["offset"] == 0:
            content[:headers] = b""
        if one["address"] <= table["address"] < one["address"] + one["file_bytes"]:
            start = table["address"] - one["address"]
            rows = [
                struct.unpack_from("<QQ", content, at) for at in range(start, start + table["file_bytes"], 16)
            ]
            content[start : start + table["file_bytes"]] = b""
        memory.append((one["address"], one["memory_bytes"], one["flags"], one["alignment"], bytes(content)))
    needed = [value for tag, value in rows if tag == 1]
    asked = [(one["address"], one["memory_bytes"]) for one in (table, *of(RELRO))]
    threads = [
        tuple(one[name] for name in ("address", "file_bytes", "memory_bytes", "alignment")) for one in of(TLS)
    ]
    return memory, needed, sorted(rows), asked, threads, [one["flags"] for one in of(STACK)]


class Mutator:
    """Random changes of headers, dynamic table and hash table. ``kinds`` counts them."""

    def __init__(self, data, rng, hashes=True):
        self.data, self.rng, self.kinds = data, rng, Counter()
        edit = Edit(data)
        head = edit.read(0, Edit.HEADER)
        self.places = {
            "header": ([0], Edit.HEADER),
            "segments": ([head["segments_at"] + 56 * n for n in range(head["segment_count"])], Edit.SEGMENT),
            "dynamic": (edit.rows(".dynamic", Edit.TAG), Edit.TAG),
            "sections": ([head["sections_at"] + 64 * n for n in range(head["section_count"])], Edit.SECTION),
            **({"hash": (edit.rows(".gnu.hash", ("<I", "word")), ("<I", "word"))} if hashes else {}),
        }
        rows = [edit.read(at, form) for places, form in self.places.values() for at in places]
        self.values = sorted({v for row in rows for v in row.values() if isinstance(v, int)})

    def mutant(self):
        """Another file, and a description of its change."""
        while True:
            edit, done = Edit(self.data), []
            for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
                kind = self.rng.choice(list(self.places))
                done.append(f"{kind} {self._change(edit, *self.places[kind])}")
            if edit.data != self.data:
                self.kinds.update(word.split()[0] for word in done)
                return edit.data, done

    def _change(self, edit, places, form):
        rng, at = self.rng, self.rng.choice(places)
        if rng.random() < 0.1:  # swap two rows, or duplicate one
            other, size = rng.choice(places), struct.calcsize(form[0])
            mine, theirs = bytes(edit.bytes[at : at + size]), bytes(edit.bytes[other : other + size])
            edit.bytes[at : at + size] = theirs
            if rng.random() < 0.5:
                edit.bytes[other : other + size] = mine
            return f"{at} and {other} change places"
        row = edit.read(at, form)
        widths = dict(zip(row, re.findall(r"\d*[a-zA-Z]", form[0]), strict=True))
        name = rng.choice([name for name, value in row.items() if isinstance(value, int)])
        value = self._value(row[name]) % (1 << 8 * struct.calcsize(widths[name]))
        edit.write(at, form, **{name: value})
        return f"{at} {name} {row[name]:#x} -> {value:#x}"

    def _value(self, before):
        rng = self.rng
        near = before + rng.choice((-4096, -64, -24, -16, -8, -1, 1, 8, 16, 24, 64, 4096))
        odd = rng.choice((0, 1, 2, 3, 7, 255, 0xFFFF, 1 << 31, 1 << 32, 1 << 47, 1 << 63, (1 << 64) - 1))
        flag = before ^ 1 << rng.randrange(64)
        return rng.choice((near, odd, flag, rng.choice(self.values), rng.choice(self.values)))
