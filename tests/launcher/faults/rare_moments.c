// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// To be preloaded: what a test from outside would hit once in a thousand runs.
//
// MOMENT_DEFAULT: SIGUSR1 comes as soon as the process no longer handles it.
// MOMENT_LAST: SIGTERM comes just before a process that has reaped a child ends by _exit; a signal
//   that it then sends to that child's number, which may be another process's, goes into this file.
// MOMENT_SOCKETS: no files are left for the socket pair of this number.
// MOMENT_WATCH: the kernel does not watch the file of this number.
// MOMENT_FSYNC: the disk takes this many milliseconds.
// MOMENT_END: much happens between a look that finds nothing new in a file and what comes then.

#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t reaped;

int sigaction(int number, const struct sigaction *action, struct sigaction *before) {
  int (*next)(int, const struct sigaction *, struct sigaction *) = NULL;
  *(void **)&next = dlsym(RTLD_NEXT, "sigaction");
  const int result = next(number, action, before);
  if (getenv("MOMENT_DEFAULT") != NULL && number == SIGUSR1 && action != NULL &&
      action->sa_handler == SIG_DFL) {
    kill(getpid(), SIGUSR1);
  }
  return result;
}

pid_t waitpid(pid_t pid, int *status, int options) {
  const pid_t result = (pid_t)syscall(SYS_wait4, pid, status, options, NULL);
  if (result > 0 && status != NULL && (WIFEXITED(*status) || WIFSIGNALED(*status))) {
    reaped = result;
  }
  return result;
}

int kill(pid_t pid, int number) {
  const char *log = getenv("MOMENT_LAST");
  if (log != NULL && reaped != 0 && pid == reaped) {
    const int file = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (write(file, "x", 1) == 1) close(file);
  }
  return (int)syscall(SYS_kill, pid, number);
}

void _exit(int code) {
  if (getenv("MOMENT_LAST") != NULL && reaped != 0) kill(getpid(), SIGTERM);
  while (1) syscall(SYS_exit_group, code);
}

int socketpair(int domain, int type, int protocol, int ends[2]) {
  static int count;
  const char *last = getenv("MOMENT_SOCKETS");
  if (last != NULL && ++count >= atoi(last)) {
    errno = EMFILE;
    return -1;
  }
  return (int)syscall(SYS_socketpair, domain, type, protocol, ends);
}

int statx(int folder, const char *path, int flags, unsigned int mask, struct statx *status) {
  const int result = (int)syscall(SYS_statx, folder, path, flags, mask, status);
  if (getenv("MOMENT_END") != NULL) usleep(300000);
  return result;
}

int fsync(int fd) {
  const char *time = getenv("MOMENT_FSYNC");
  if (time != NULL) usleep((useconds_t)atoi(time) * 1000);
  return (int)syscall(SYS_fsync, fd);
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
  static int count;
  const char *which = getenv("MOMENT_WATCH");
  if (which != NULL && operation == EPOLL_CTL_ADD && ++count == atoi(which)) {
    errno = ENOSPC;
    return -1;
  }
  return (int)syscall(SYS_epoll_ctl, epoll, operation, fd, event);
}
