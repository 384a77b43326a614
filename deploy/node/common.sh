# shellcheck shell=sh disable=SC2034,SC2154,SC2015,SC2016,SC2153 # names are those of boot and the other files
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# What both roles of boot need. Sourced by boot, which sets $here, $etc, $run, $conf and $log_file.

is_watch=no
was_watching=no
has_provider=no
id=''

log() {
  log_line="$(date -u +%Y-%m-%dT%H:%M:%SZ) $*"
  printf '%s\n' "$log_line" >>"$log_file"
  printf '%s\n' "$log_line" >&3
}

# fail NAME TEXT: whoever waits for this node learns it now and not by a time limit. A watch that was ended for this run
# goes on: what it knows is better than nothing.
fail() {
  log "boot: $1: $2"
  if [ "$was_watching" = yes ]; then
    was_watching=no
    begin_watch
  fi
  if [ "$is_watch" = no ] && [ "$has_provider" = yes ]; then
    has_provider=no
    retry "$RETRY_FOR" signal signal FAILURE ||
      log "boot: the stack could not be told of the failure: $(why signal); it will see its time limit instead"
  fi
  exit 1
}

# The last line of what a call said when it failed.
why() {
  why_line=$(tail -n 1 "$run/why.$1" 2>/dev/null)
  printf '%s' "${why_line:-no reason given}"
}

is_systemd() { [ -d /run/systemd/system ]; }

now() { date +%s; }

# retry SECONDS WHAT COMMAND...: until it succeeds; waits 1, 2, 4, 8, 8... s and up to a second more, so that nodes
# which were refused together do not come back together. Its output is in $answer; $run/why.WHAT says why it fails.
retry() {
  retry_until=$(($(now) + $1))
  retry_what=$2
  retry_pause=1
  shift 2
  until answer=$("$@" 2>"$run/why.$retry_what"); do
    [ "$(($(now) + retry_pause))" -lt "$retry_until" ] || return 1
    sleep "$retry_pause.$(od -An -N1 -tu1 /dev/urandom | tr -d ' ')"
    retry_pause=$((retry_pause < 8 ? retry_pause * 2 : 8))
  done
}

# replace FILE MODE: puts stdin in the file's place, so that readers see the one or the other. One that is the same
# already is left alone, since those that follow it would read it again.
replace() {
  replace_new=$(mktemp "$1.new-XXXXXX") || return 1
  if cat >"$replace_new" && chmod "$2" "$replace_new"; then
    if [ -f "$1" ] && [ "$(cat "$1")" = "$(cat "$replace_new")" ]; then
      rm -f "$replace_new"
      chmod "$2" "$1"
      return
    fi
    sync "$replace_new" 2>/dev/null
    mv -f "$replace_new" "$1" && return 0
  fi
  rm -f "$replace_new"
  return 1
}

# check_word NAME VALUE PATTERN: a value that goes into other files, of one line; PATTERN is of grep -E.
check_word() {
  printf '%s\0' "$2" | grep -Eqxz -e "$3" || fail bad-config "$conf: $1=$2 is not what $1 may be"
}

read_config() {
  [ -f "$conf" ] || fail bad-config "there is no $conf; it is written by the cloud's user data, or by hand"
  case $(stat -c '%u %A' "$conf") in
    0\ ?????w* | 0\ ????????w*) fail bad-config "others than root may write to $conf: chmod go-w $conf" ;;
    0\ *) ;;
    *) fail bad-config "$conf is not root's: chown root $conf" ;;
  esac
  ROLE='' PROVIDER='' CLUSTER='' REGION='' SLOTS=auto SHARED='' NODE_USER=chainmail
  NODE_UID=5500 WAIT=600 RETRY_FOR=120 GROUP='' SIGNAL='' ENDPOINT='' STORE='' MASTER='' ID='' ADDRESS=''
  sh -n "$conf" 2>"$run/why.config" || fail bad-config "$(why config)"
  # shellcheck disable=SC1090
  . "$conf"
  check_word PROVIDER "$PROVIDER" '[a-z]+'
  [ -r "$here/$PROVIDER.sh" ] || fail bad-config "$conf: PROVIDER=$PROVIDER: there is no $here/$PROVIDER.sh"
  check_word CLUSTER "$CLUSTER" '[A-Za-z0-9][A-Za-z0-9._-]*'
  check_word REGION "$REGION" '[a-z0-9-]*'
  # From here on a failure is told.
  # shellcheck source=deploy/node/aws.sh
  . "$here/$PROVIDER.sh"
  has_provider=yes
  check_word ROLE "$ROLE" 'master|worker'
  check_word SLOTS "$SLOTS" 'auto|[1-9][0-9]{0,3}'
  check_word SHARED "$SHARED" '(/[A-Za-z0-9/._-]*)?'
  check_word NODE_USER "$NODE_USER" '[a-z_][a-z0-9_-]*'
  check_word NODE_UID "$NODE_UID" '[1-9][0-9]*'
  check_word WAIT "$WAIT" '[1-9][0-9]*'
  check_word RETRY_FOR "$RETRY_FOR" '[1-9][0-9]*'
}

is_address() {
  case $1 in
    '' | *[!0-9a-fA-F:.]*) return 1 ;;
    *.*.*.* | *:*:*) return 0 ;;
  esac
  return 1
}

# What every run begins with: the configuration, the functions of provider and role, and $id, $name and $address. A watch
# has time.
begin() {
  if [ "$(id -u)" != 0 ]; then
    echo "boot: not-root: it makes users, and files of root's: run it as root" >&2
    exit 1
  fi
  mkdir -p "$etc" "$run" || exit 1
  read_config
  # shellcheck source=deploy/node/master.sh
  . "$here/$ROLE.sh"
  [ "$is_watch" = no ] || RETRY_FOR=3600
  retry "$RETRY_FOR" whoami whoami || fail no-metadata "this machine does not learn who it is: $(why whoami)"
  # shellcheck disable=SC2086
  set -- $answer
  { [ $# -eq 3 ] && is_address "$3"; } || fail no-metadata "'$answer' is not an id, a name and an address"
  id=$1 name=$2 address=$3
}

wait_for_shared() {
  [ -n "$SHARED" ] || return 0
  shared_until=$(($(now) + WAIT))
  until mountpoint -q "$SHARED"; do
    [ "$(now)" -lt "$shared_until" ] ||
      fail no-shared "nothing has been mounted at $SHARED within $WAIT s; see /etc/fstab and the user data's log"
    sleep 1
  done
}

# The same number on all nodes, since it owns the files on $SHARED. $home is made by the master alone.
make_user() {
  home=${SHARED:-/home}/$NODE_USER
  if ! id "$NODE_USER" >/dev/null 2>&1; then
    useradd --uid "$NODE_UID" --user-group --no-create-home --home-dir "$home" --shell /bin/bash "$NODE_USER" \
      2>"$run/why.user" || fail no-user "user $NODE_USER with number $NODE_UID cannot be made: $(why user)"
    # Not locked, which some sshds refuse; still no password fits.
    usermod -p '*' "$NODE_USER"
  fi
  home=$(getent passwd "$NODE_USER" | cut -d: -f6)
}

make_home() {
  [ ! -d "$home" ] || return 0
  mkdir -p "$home.new" && cp -rT /etc/skel "$home.new" 2>/dev/null
  chown -R "$NODE_USER:" "$home.new" && chmod 700 "$home.new" && mv -T "$home.new" "$home" ||
    fail no-user "the home of $NODE_USER, $home, cannot be made"
}

# Drivers that hang must not.
own_slots() {
  slots=$SLOTS
  if [ "$slots" = auto ]; then
    slots=$(timeout 30 nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
    [ "$slots" != 0 ] || slots=$(find /proc/driver/nvidia/gpus -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)
    [ "$slots" != 0 ] || slots=$(nproc)
  fi
  [ "$slots" -le 1024 ] || slots=1024
}
