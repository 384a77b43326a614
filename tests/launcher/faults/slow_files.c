// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// To be preloaded: a file system on which entering a folder takes SLOW_FOLDER seconds, and below
// SLOW_BELOW a look at a file SLOW_LOOK seconds and running one SLOW_EXEC seconds.

#define _GNU_SOURCE

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void take(const char *variable) {
  const char *seconds = getenv(variable);
  if (seconds != NULL) {
    struct timespec time = {atoi(seconds), 0};
    nanosleep(&time, NULL);
  }
}

static int is_below(const char *path) {
  const char *folder = getenv("SLOW_BELOW");
  return folder != NULL && strncmp(path, folder, strlen(folder)) == 0;
}

int chdir(const char *path) {
  take("SLOW_FOLDER");
  return (int)syscall(SYS_chdir, path);
}

int stat(const char *path, struct stat *status) {
  if (is_below(path)) take("SLOW_LOOK");
  return fstatat(AT_FDCWD, path, status, 0);
}

int execvpe(const char *file, char *const arguments[], char *const environment[]) {
  int (*next)(const char *, char *const[], char *const[]) = NULL;
  *(void **)&next = dlsym(RTLD_NEXT, "execvpe");
  if (is_below(file)) take("SLOW_EXEC");
  return next(file, arguments, environment);
}
