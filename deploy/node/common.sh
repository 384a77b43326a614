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
  trap - INT TERM HUP
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
  printf '%s' "${why_line:-no reason given; is there space in $run?}"
}

is_systemd() { [ -d /run/systemd/system ]; }

# Seconds of this machine's run. A clock is set, often by hours and just after the start, when every wait would be over.
now() {
  read -r uptime _ </proc/uptime
  echo "${uptime%.*}"
}

# within SECONDS WHAT COMMAND...: 124 where it does not end, whatever it waits for: what hangs in the kernel, on a
# network file system whose server is away, is left to itself. $run/why.WHAT has its stderr; its stdout is nobody's.
within() {
  within_until=$(($(now) + $1))
  within_what=$2
  shift 2
  rm -f "$run/within"
  echo 1 >"$run/within.new" || return 1
  {
    "$@"
    echo $? >"$run/within.new" && mv -f "$run/within.new" "$run/within"
  } </dev/null >/dev/null 2>"$run/why.$within_what" 3>&- 8>&- 9>&- &
  within_pid=$!
  until [ -s "$run/within" ]; do
    if [ "$(now)" -ge "$within_until" ]; then
      # shellcheck disable=SC2046
      kill -9 "$within_pid" $(cat "/proc/$within_pid/task/$within_pid/children" 2>/dev/null) 2>/dev/null
      return 124
    fi
    sleep 0.1
  done
  return "$(cat "$run/within")"
}

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

# replace FILE [MODE]: puts stdin in the file's place, so that readers see the one or the other. One that is the same
# already is left alone, since those that follow it would read it again. Without MODE it is somebody else's and keeps its
# owner and mode. A link stays one. A file that is mounted, as containers have /etc/hosts, has no other in its place: it is
# written over, and cut to its length afterwards.
replace() {
  replace_file=$(readlink -f "$1") || return 1
  replace_beside=$replace_file
  ! is_mounted "$replace_file" || replace_beside=$run/mounted
  replace_new=$(mktemp "$replace_beside.chainmail-XXXXXX") || return 1
  if cat >"$replace_new" && give_mode "${2:-}"; then
    if [ -f "$replace_file" ] && [ "$(cat "$replace_file")" = "$(cat "$replace_new")" ]; then
      rm -f "$replace_new"
      [ -z "${2:-}" ] || chmod "$2" "$replace_file"
      return
    fi
    sync "$replace_new" 2>/dev/null
    if [ "$replace_beside" != "$replace_file" ]; then
      # shellcheck disable=SC2094
      cat "$replace_new" 1<>"$replace_file" && truncate -s "$(stat -c %s "$replace_new")" "$replace_file"
      replace_status=$?
      rm -f "$replace_new"
      return "$replace_status"
    fi
    mv -f "$replace_new" "$replace_file" && return 0
  fi
  rm -f "$replace_new"
  return 1
}

give_mode() {
  if [ -n "$1" ]; then
    chmod "$1" "$replace_new"
  elif [ -f "$replace_file" ]; then
    chmod --reference="$replace_file" "$replace_new" && chown --reference="$replace_file" "$replace_new"
  else
    chmod 644 "$replace_new"
  fi
}

is_mounted() { awk -v place="$1" '$5 == place { found = 1 } END { exit !found }' /proc/self/mountinfo; }

# What is left of a run that was killed.
remove_leftovers() {
  rm -f "$etc"/*.chainmail-?????? "$etc"/login/*.chainmail-?????? /etc/hosts.chainmail-?????? \
    /etc/ssh/*.chainmail-?????? /etc/ssh/ssh*_config.d/*.chainmail-?????? \
    /etc/systemd/system/chainmail-node.service.chainmail-?????? "$run"/*.chainmail-??????
}

# without_block FILE: a file without what boot has added to it. A mark without the other one, as editors leave them,
# encloses nothing: what follows may be anybody's. Its last line ends, whatever it did.
without_block() {
  [ -f "$1" ] || return 0
  awk '
    { line[NR] = $0 }
    /^# BEGIN chainmail\r?$/ { begin = NR; mark[NR] }
    /^# END chainmail\r?$/ { mark[NR]; for (n = begin; begin && n <= NR; n++) mark[n]; begin = 0 }
    END { for (n = 1; n <= NR; n++) if (!(n in mark)) print line[n] }' "$1"
}

# check_word NAME VALUE PATTERN: a value that goes into other files, of one line; PATTERN is of grep -E.
check_word() {
  printf '%s\0' "$2" | grep -Eqxz -e "$3" && return
  fail bad-config "$conf: $1=$(printf '%s' "$2" | tr -cd '[:print:]' | cut -c 1-200) is not what $1 may be"
}

# check_roots FILE: fails where others could write to it.
check_roots() {
  case $(stat -c '%u %A' "$1") in
    0\ ?????w* | 0\ ????????w*) fail bad-config "others than root may write to $1: chmod go-w $1" ;;
    0\ *) ;;
    *) fail bad-config "$1 is not root's: chown root $1" ;;
  esac
}

keys='ROLE PROVIDER CLUSTER REGION SLOTS SHARED NODE_USER NODE_UID WAIT RETRY_FOR GROUP SIGNAL ENDPOINT STORE MASTER ID ADDRESS'

# All of it is root's and sound before a line of it counts: sh would go on after "SLOTS = 2", or end in the middle.
check_config() {
  [ -f "$conf" ] || fail bad-config "there is no $conf; it is written by the cloud's user data, or by hand"
  check_roots "$(readlink -f "$conf")"
  check_roots "$(dirname "$(readlink -f "$conf")")"
  ! grep -q "$(printf '\r')" "$conf" || fail bad-config "$conf has the line ends of Windows: sed -i 's/\r\$//' $conf"
  sh -n "$conf" 2>"$run/why.config" || fail bad-config "$(why config)"
  ended=$(timeout 60 sh -euc '. "$1"; echo; echo ended' sh "$conf" </dev/null 2>"$run/why.config" | tail -n 1)
  [ "$ended" = ended ] || {
    [ -s "$run/why.config" ] || echo "it ends sh" >"$run/why.config"
    fail bad-config "$conf must hold assignments, KEY=VALUE without blanks around the =: $(why config)"
  }
  [ "$is_watch" = no ] || return 0
  sed -nE 's/^[[:space:]]*(export[[:space:]]+)?([A-Za-z_][A-Za-z0-9_]*)=.*/\2/p' "$conf" | while read -r key; do
    case " $keys " in
      *" $key "*) ;;
      *) log "boot: $conf: $key is no key that boot knows; is it misspelt?" ;;
    esac
  done
}

# need COMMAND...: named at once, and not when it is missed.
need() {
  missing=''
  for tool in "$@"; do
    command -v "$tool" >/dev/null || missing="$missing $tool"
  done
  [ -z "$missing" ] || fail no-tool "missing on this machine:$missing"
}

read_config() {
  check_config
  ROLE='' PROVIDER='' CLUSTER='' REGION='' SLOTS=auto SHARED='' NODE_USER=chainmail
  NODE_UID=5500 WAIT=600 RETRY_FOR=120 GROUP='' SIGNAL='' ENDPOINT='' STORE='' MASTER='' ID='' ADDRESS=''
  # shellcheck disable=SC1090
  . "$conf"
  check_word PROVIDER "$PROVIDER" '[a-z]+'
  grep -qs '^whoami() {' "$here/$PROVIDER.sh" || fail bad-config "$conf: PROVIDER=$PROVIDER: boot has no such provider"
  check_word CLUSTER "$CLUSTER" '[A-Za-z0-9][A-Za-z0-9._-]*'
  check_word REGION "$REGION" '[a-z0-9-]*'
  check_word ENDPOINT "$ENDPOINT" '(https?://[^[:space:]]+)?'
  # shellcheck source=deploy/node/aws.sh
  . "$here/$PROVIDER.sh"
  # shellcheck disable=SC2086
  need awk flock getent mountpoint setsid ssh-keygen timeout useradd $provider_needs
  # From here on a failure is told.
  has_provider=yes
  check_word ROLE "$ROLE" 'master|worker'
  [ "$ROLE" = master ] || need sshd ssh-keyscan
  check_word SLOTS "$SLOTS" 'auto|[1-9][0-9]{0,2}|10[01][0-9]|102[0-4]'
  check_word SHARED "$SHARED" '((/[A-Za-z0-9._-]+)+/?)?'
  SHARED=${SHARED%/}
  check_word NODE_USER "$NODE_USER" '[a-z_][a-z0-9_-]*'
  [ "$NODE_USER" != root ] || fail bad-config "$conf: NODE_USER=root: jobs do not run as root; name another user"
  check_word NODE_UID "$NODE_UID" '[1-9][0-9]{0,9}'
  check_word WAIT "$WAIT" '[1-9][0-9]{0,5}'
  check_word RETRY_FOR "$RETRY_FOR" '[1-9][0-9]{0,5}'
  check_keys
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
  { [ $# -eq 3 ] && is_address "$3"; } || fail no-metadata \
    "'$(printf '%s' "$answer" | tr '\n' ' ' | tr -cd '[:print:]' | cut -c 1-200)' is not an id, a name and an address"
  id=$1 name=$2 address=$3
}

# The second asks the server, where the first may have its answer from a cache.
does_shared_answer() { mountpoint -q "$SHARED" && stat -f "$SHARED"; }

wait_for_shared() {
  [ -n "$SHARED" ] || return 0
  shared_until=$(($(now) + WAIT))
  until within "$((WAIT < 20 ? WAIT : 20))" shared does_shared_answer; do
    [ $? = 124 ] && shared_state="what is mounted at $SHARED has not answered; is its server up, and open to this node?" ||
      shared_state="nothing has been mounted at $SHARED; see /etc/fstab and the user data's log"
    [ "$(now)" -lt "$shared_until" ] || fail no-shared "within $WAIT s $shared_state"
    sleep 1
  done
}

# The same number on all nodes, since it owns the files on $SHARED. $home is made by the master alone.
make_user() {
  if ! number=$(id -u "$NODE_USER" 2>/dev/null); then
    add_user
  elif [ "$number" != "$NODE_UID" ]; then
    fail no-user "user $NODE_USER is there and has the number $number, not NODE_UID=$NODE_UID, which all nodes must have: \
set NODE_UID=$number in $conf on all of them, or change it here: usermod -u $NODE_UID $NODE_USER"
  fi
  home=$(getent passwd "$NODE_USER" | cut -d: -f6)
  [ -z "$SHARED" ] || case $home in
    "$SHARED"/*) ;;
    *) log "boot: the home of $NODE_USER is $home already, and not below SHARED=$SHARED" ;;
  esac
}

# Not locked, which some sshds refuse; still no password fits. Somebody else may have the file of users locked for a while.
add_user() {
  taken=$(getent passwd "$NODE_UID" | cut -d: -f1)
  [ -z "$taken" ] || fail no-user "NODE_UID=$NODE_UID is the number of user $taken: choose one that is free on all nodes"
  group=$(getent group "$NODE_USER" | cut -d: -f3)
  case $group in
    '') user_group=--user-group ;;
    "$NODE_UID") user_group=--no-user-group\ --gid=$NODE_UID ;;
    *) fail no-user "there is a group $NODE_USER with the number $group, not $NODE_UID: groupmod -g $NODE_UID $NODE_USER" ;;
  esac
  # shellcheck disable=SC2086
  retry 20 user timeout -k 5 60 useradd --uid "$NODE_UID" $user_group --no-create-home \
    --home-dir "${SHARED:-/home}/$NODE_USER" --shell /bin/bash --password '*' "$NODE_USER" ||
    fail no-user "user $NODE_USER with number $NODE_UID cannot be made: $(why user)"
}

make_home() {
  within 60 home own_home && return
  [ $? != 124 ] || echo "its file system has not answered within 60 s" >"$run/why.home"
  fail no-user "the home of $NODE_USER, $home: $(why home)"
}

is_own_home() {
  [ -d "$home" ] || {
    echo "it is there and no folder" >&2
    return 1
  }
  case $(stat -c %u "$home"):$(stat -Lc '%u %A' "$home") in
    *:"$NODE_UID d"???????w*) echo "others may write to it: chmod o-w $home" >&2 ;;
    0:"$NODE_UID "* | "$NODE_UID:$NODE_UID "*) return 0 ;;
    *) echo "it belongs to $(stat -Lc '%U (%u)' "$home"), not to $NODE_USER ($NODE_UID)" >&2 ;;
  esac
  return 1
}

# One that is there must be the user's, since what lies in it runs as the user. A new one gets a name that nobody can
# know before: others may have the right to write beside it.
own_home() {
  rm -rf "$home".chainmail-??????
  if [ -e "$home" ] || [ -L "$home" ]; then
    is_own_home
    return
  fi
  mkdir -p "$(dirname "$home")" && new_home=$(mktemp -d "$home.chainmail-XXXXXX") || return 1
  { [ ! -d /etc/skel ] || cp -rT /etc/skel "$new_home"; } && chown -R "$NODE_USER:" "$new_home" &&
    chmod 700 "$new_home" && mv -T "$new_home" "$home" && return 0
  rm -rf "$new_home"
  return 1
}

# Drivers that hang must not.
own_slots() {
  slots=$SLOTS
  if [ "$slots" = auto ]; then
    slots=$(timeout -k 5 30 nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
    [ "$slots" != 0 ] || slots=$(find /proc/driver/nvidia/gpus -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)
    [ "$slots" != 0 ] || slots=$(nproc)
  fi
  [ "$slots" -le 1024 ] || slots=1024
}
