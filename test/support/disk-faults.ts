// A disk that fills up or turns read-only under a running daemon: a library that is loaded before the daemon's own makes the
// system's calls fail as they then would. Needs Linux and a C compiler.
import { spawnSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

// Calls on files below FAULT_DIR fail while FAULT_FILE is there: with ENOSPC when it begins with `f`, else with EROFS.
const SOURCE = String.raw`
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int fault(void) {
  const char *file = getenv("FAULT_FILE");
  if (file == NULL) return 0;
  int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
  int fd = real(file, O_RDONLY);
  if (fd < 0) return 0;
  char kind = 0;
  ssize_t length = read(fd, &kind, 1);
  close(fd);
  return length == 1 ? (kind == 'f' ? ENOSPC : EROFS) : 0;
}

static int is_below(const char *path) {
  const char *dir = getenv("FAULT_DIR");
  return dir != NULL && strncmp(path, dir, strlen(dir)) == 0;
}

static int fails(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  if (!is_below(path)) return 0;
  int code = fault();
  if (code != 0) errno = code;
  return code != 0;
}

static int open_fails(const char *path, int flags) {
  if (!is_below(path) || (flags & (O_WRONLY | O_RDWR | O_CREAT)) == 0) return 0;
  int code = fault();
  if (code == ENOSPC && (flags & O_CREAT) == 0) return 0;
  if (code != 0) errno = code;
  return code != 0;
}

#define REAL(name) dlsym(RTLD_NEXT, name)
ssize_t write(int fd, const void *b, size_t n) { ssize_t (*f)(int, const void *, size_t) = REAL("write"); return fails(fd) ? -1 : f(fd, b, n); }
ssize_t pwrite(int fd, const void *b, size_t n, off_t o) { ssize_t (*f)(int, const void *, size_t, off_t) = REAL("pwrite"); return fails(fd) ? -1 : f(fd, b, n, o); }
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t o) { ssize_t (*f)(int, const void *, size_t, off64_t) = REAL("pwrite64"); return fails(fd) ? -1 : f(fd, b, n, o); }
ssize_t pwritev(int fd, const struct iovec *v, int c, off_t o) { ssize_t (*f)(int, const struct iovec *, int, off_t) = REAL("pwritev"); return fails(fd) ? -1 : f(fd, v, c, o); }
int open(const char *p, int flags, ...) { va_list a; va_start(a, flags); int mode = va_arg(a, int); va_end(a); int (*f)(const char *, int, ...) = REAL("open"); return open_fails(p, flags) ? -1 : f(p, flags, mode); }
int open64(const char *p, int flags, ...) { va_list a; va_start(a, flags); int mode = va_arg(a, int); va_end(a); int (*f)(const char *, int, ...) = REAL("open64"); return open_fails(p, flags) ? -1 : f(p, flags, mode); }
`;

export interface FaultyDisk {
  /** Variables of the process whose disk it is. */
  readonly environment: Readonly<Record<string, string>>;
  fail(kind: 'full' | 'read-only'): void;
  mend(): void;
}

/** Why there can be no such disk here; false when there can. */
export function skipWithoutFaultyDisk(): false | string {
  if (process.platform !== 'linux') return 'it needs Linux, whose loader takes LD_PRELOAD';
  return spawnSync('cc', ['--version']).status === 0
    ? false
    : 'it needs a C compiler (cc) for the library that fails writes';
}

/** Builds the library in `directory`; the faults are those of files below `dataDirectory`. */
export function createFaultyDisk(directory: string, dataDirectory: string): FaultyDisk {
  const [source, library, switchFile] = ['faults.c', 'faults.so', 'fault'].map((name) => join(directory, name)) as [
    string,
    string,
    string,
  ];
  writeFileSync(source, SOURCE);
  const built = spawnSync('cc', ['-shared', '-fPIC', '-O1', '-o', library, source, '-ldl'], { encoding: 'utf8' });
  if (built.status !== 0) throw new Error(built.stderr);
  return {
    environment: { LD_PRELOAD: library, FAULT_FILE: switchFile, FAULT_DIR: dataDirectory },
    fail: (kind) => writeFileSync(switchFile, kind),
    mend: () => rmSync(switchFile),
  };
}
