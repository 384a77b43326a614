// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// To be preloaded: a file system on which entering a folder takes SLOW_FOLDER seconds.

#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int chdir(const char *path) {
  const char *seconds = getenv("SLOW_FOLDER");
  if (seconds != NULL) {
    struct timespec time = {atoi(seconds), 0};
    nanosleep(&time, NULL);
  }
  return (int)syscall(SYS_chdir, path);
}
