// Preloaded into a publisher: kills it, or simulates a full disk, at the n-th call that changes the file
// system. A write counts twice, before its first byte and after half of them. Each call is told to `trace`.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

long kill_at, full_at, calls;
int trace = -1;  // a file descriptor; counting begins once it is set

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_full(const char* what, const char* path) {
  if (trace < 0) return 0;
  ++calls;
  dprintf(trace, "%s %s\n", what, path);
  if (calls == kill_at) kill(getpid(), SIGKILL);
  return full_at && calls >= full_at;
}

static const char* path_of(int fd) {
  static char path[PATH_MAX];
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  path[length < 0 ? 0 : length] = 0;
  return path;
}

static int no_room(void) {
  errno = ENOSPC;
  return -1;
}

static int open_with(int (*real)(const char*, int, ...), const char* path, int flags, int mode) {
  if ((flags & (O_CREAT | O_TRUNC)) && is_full("open", path)) return no_room();
  return real(path, flags, mode);
}

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  int mode = va_arg(more, int);
  va_end(more);
  return open_with(REAL(open), path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  int mode = va_arg(more, int);
  va_end(more);
  return open_with(REAL(open64), path, flags, mode);
}

ssize_t write(int fd, const void* data, size_t size) {
  __typeof__(&write) real = REAL(write);
  if (is_full("write", path_of(fd))) return no_room();
  size_t half = size / 2;
  for (size_t done = 0; trace >= 0 && done < half;) {
    ssize_t now = real(fd, (const char*)data + done, half - done);
    if (now < 0) return now;
    done += (size_t)now;
  }
  if (trace < 0) half = 0;
  if (is_full("half-written", path_of(fd))) return half ? (ssize_t)half : no_room();
  ssize_t rest = real(fd, (const char*)data + half, size - half);
  return rest < 0 ? rest : rest + (ssize_t)half;
}

int rename(const char* from, const char* to) {
  return is_full("rename", to) ? no_room() : REAL(rename)(from, to);
}

int mkdir(const char* path, mode_t mode) {
  return is_full("mkdir", path) ? no_room() : REAL(mkdir)(path, mode);
}

// The data of a killed process stay in the page cache, so fsync can do nothing here.
int fsync(int fd) { return is_full("fsync", path_of(fd)) ? no_room() : 0; }

int unlink(const char* path) {
  is_full("unlink", path);  // a full disk takes this
  return REAL(unlink)(path);
}
