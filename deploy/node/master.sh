# shellcheck shell=sh disable=SC2034,SC2154,SC2015,SC2016,SC2153 # names are those of boot and the other files
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# The master's part of boot: a login key that never leaves it, and files that say which workers there are.
#
#   $etc/login/id_ed25519    the key, NODE_USER's; not in the home, which workers may share
#   $etc/hosts               the hostfile
#   $etc/nodes               the workers in it, "NAME ADDRESS SLOTS TYPE KEY" each
#   $etc/known_hosts         host keys of the workers in it, no others
#   /etc/ssh/ssh_config.d/50-chainmail.conf, and a block in /etc/hosts: how to reach them

key=$etc/login/id_ed25519
period=5
published=''
yielded_to=''
records_every=60
absent_for=900

# The private half comes last: where it is, all is. An empty one is of a machine that lost power.
make_login_key() {
  mkdir -p "$etc/login"
  if [ ! -s "$key" ]; then
    rm -f "$key" "$key.new" "$key.new.pub"
    ssh-keygen -q -t ed25519 -N '' -C "chainmail $CLUSTER" -f "$key.new" 2>"$run/why.key" && sync "$key.new" &&
      mv -f "$key.new.pub" "$key.pub" && mv -f "$key.new" "$key" || fail no-key "$(why key)"
  fi
  case $(stat -c %A "$key") in
    ????------) ;;
    *) log "boot: others could read $key; remove it, and run boot again, if anybody may have done so" ;;
  esac
  chown "$NODE_USER:" "$key" 2>"$run/why.key" && chmod 600 "$key" 2>"$run/why.key" ||
    fail no-key "$key cannot be given to $NODE_USER: $(why key)"
  public=$(ssh-keygen -y -P '' -f "$key" 2>"$run/why.key" | cut -d ' ' -f 1,2)
  expr "x$public" : 'xssh-ed25519 [A-Za-z0-9+/=]*$' >/dev/null ||
    fail no-key "$key is no ed25519 key without a passphrase; remove it, and boot makes another one: $(why key)"
  [ "$(cut -d ' ' -f 1,2 "$key.pub" 2>/dev/null)" = "$public" ] || echo "$public chainmail $CLUSTER" | replace "$key.pub" 644 ||
    fail no-key "$key.pub cannot be written"
  chown "$NODE_USER:" "$key.pub" && chmod 644 "$key.pub" || fail no-key "$key.pub cannot be given to $NODE_USER"
}

# Of two masters, as there are while one is replaced, the later one stays: taking turns would lock both out now and then.
publish_login() {
  login="$address $(cut -d ' ' -f 1,2 "$key.pub")"
  stored=$(get login) || [ $? = 1 ] || return 2
  if [ "$stored" != "$login" ]; then
    if [ "$is_watch" = yes ] && [ -n "$stored" ] && [ "$published" = "$login" ]; then
      [ "$yielded_to" = "$stored" ] || log "watch: another machine, ${stored%% *}, is the master now: workers let that one in. \
If it should be this one, run boot here"
      yielded_to=$stored
      return 0
    fi
    printf '%s\n' "$login" | put login || return 2
  fi
  published=$login
  yielded_to=''
}

# Open MPI's own default hostfile, so that its mpirun finds the same hosts.
link_default_hostfile() {
  for folder in /etc/openmpi /opt/amazon/openmpi*/etc; do
    link=$folder/openmpi-default-hostfile
    [ -d "$folder" ] && [ "$(readlink "$link")" != "$etc/hosts" ] || continue
    [ ! -f "$link" ] || [ -L "$link" ] || cp -p "$link" "$link.orig"
    ln -sf "$etc/hosts" "$link.new" && mv -fT "$link.new" "$link" || log "boot: $link cannot be made a link"
  done
}

include_ssh_config() {
  mkdir -p /etc/ssh/ssh_config.d
  grep -qs '^Include /etc/ssh/ssh_config.d/' /etc/ssh/ssh_config && return 0
  touch /etc/ssh/ssh_config
  replace_by /etc/ssh/ssh_config '' sed '1i Include /etc/ssh/ssh_config.d/*.conf' /etc/ssh/ssh_config
}

master_set_up() {
  wait_for_shared
  make_user
  make_home
  make_login_key
  retry "$RETRY_FOR" store publish_login || fail no-store "the login key's public half cannot be stored: $(why store)"
  link_default_hostfile
  include_ssh_config || fail no-ssh "/etc/ssh/ssh_config cannot be written"
  own_slots
  rm -f "$run/read_at"
  retry "$RETRY_FOR" group ask_cloud || fail no-group "the workers cannot be asked for: $(why group)"
  write_files 2>"$run/why.files" || fail no-files "the hosts cannot be written: $(why files)"
}

# ask FILE COMMAND...: what it prints becomes the file, or the file stays as it was.
ask() {
  ask_file=$1
  shift
  "$@" >"$run/$ask_file.new" 2>"$run/why.$ask_file" && mv -f "$run/$ask_file.new" "$run/$ask_file"
}

# A record is read when its worker is new, and again now and then: one request serves all of them.
is_record_missing() {
  [ -f "$run/records" ] && [ $(($(now) - $(cat "$run/read_at" 2>/dev/null || echo 0))) -lt "$records_every" ] || return 0
  awk 'FILENAME == ARGV[1] { known[$1]; next } !($1 in known) { missing = 1 } END { exit !missing }' \
    "$run/records" "$run/members"
}

# What the cloud knows now. Whatever fails, the hostfile stays as it is.
ask_cloud() {
  # Both at once: a line goes sooner.
  ask leaving get leaving/ &
  look_leaving=$!
  look_failed=''
  ask members members || look_failed=members
  wait "$look_leaving" || look_failed=leaving
  if [ -z "$look_failed" ] && is_record_missing; then
    ask records get node/ && now >"$run/read_at" || look_failed=records
  fi
  [ -z "$look_failed" ] || {
    cat "$run/why.$look_failed" >&2
    return 1
  }
}

write_files() { choose_nodes && write_nodes && say_left_out; }

# Workers that run, have a record that can be one, and do not leave; those of the hostfile first, in its order, since the
# first hosts of a job are its base. Into a file at each step: what fails half-way must not look like fewer workers.
choose_nodes() {
  touch "$etc/hosts" "$etc/nodes"
  : >"$run/left_out"
  awk -v own="$id" -v own_name="$name" -v left_out="$run/left_out" '
    FILENAME == ARGV[1] { if (!($1 in place)) place[$1] = ++places; next }
    FILENAME == ARGV[2] { leaving[$1]; next }
    FILENAME == ARGV[3] { record[$1] = $0; next }
    # Compared as texts: ids that are numbers of 19 digits are equal as numbers when they are not.
    function is_sound(n) {
      return n == 6 && f[2] "" == $2 "" && f[2] ~ /^[A-Za-z0-9][A-Za-z0-9._:-]*$/ && length(f[2]) < 254 &&
        f[3] ~ /^[0-9A-Fa-f.:]+$/ && f[4] ~ /^[1-9][0-9]*$/ && f[4] <= 1024 &&
        f[5] == "ssh-ed25519" && f[6] ~ /^[A-Za-z0-9+\/=]+$/
    }
    function leave_out(why) { gsub(/[^ -~]/, "?", $0); print substr($1, 1, 200) ": " why >left_out }
    $1 in leaving || !($1 in record) { next }
    # Names of hosts are the same in capitals.
    { called = tolower($2) }
    $1 "" == own "" || called == tolower(own_name) || called == "localhost" { leave_out("it has the name of the master"); next }
    called in taken { leave_out("another worker has its name"); next }
    !is_sound(split(record[$1], f, " ")) { leave_out("its record has not the form of one"); next }
    { taken[called]; print ($2 in place ? place[$2] : ++places), f[2], f[3], f[4], f[5], f[6] }
  ' "$etc/hosts" "$run/leaving" "$run/records" "$run/members" >"$run/chosen" &&
    sort -n -o "$run/chosen" "$run/chosen" && cut -d ' ' -f 2- "$run/chosen" >"$run/nodes"
}

# Once, and again when it is another one.
say_left_out() {
  touch "$run/left_out.said"
  while IFS= read -r change; do
    grep -qxF -e "$change" "$run/left_out.said" || log "hosts: left out $change"
  done <"$run/left_out"
  mv -f "$run/left_out" "$run/left_out.said"
}

# What is added is known before it is listed, what is removed is known until it is not: no host is ever in the hostfile
# without its key and its address.
write_nodes() {
  awk 'FILENAME == ARGV[1] { new[$1]; print; next } !($1 in new)' "$run/nodes" "$etc/nodes" >"$run/both" &&
    write_ways "$run/both" && write_hostfile && write_ways "$run/nodes" && say_changes &&
    replace "$etc/nodes" 644 <"$run/nodes"
}

# replace_by FILE MODE COMMAND...: with what the command prints, if it succeeds.
replace_by() {
  by_file=$1
  by_mode=$2
  shift 2
  "$@" >"$run/text" && replace "$by_file" "$by_mode" <"$run/text" && return 0
  echo "$by_file cannot be written" >&2
  return 1
}

write_hostfile() { replace_by "$etc/hosts" 644 hostfile; }

write_ways() {
  replace_by "$etc/known_hosts" 644 awk '{ print $1, $4, $5 }' "$1" && replace_by /etc/hosts '' names "$1" &&
    replace_by /etc/ssh/ssh_config.d/50-chainmail.conf 644 ssh_config "$1"
}

hostfile() {
  echo "$name slots=$slots" && awk '{ print $1, "slots=" $3 }' "$run/nodes"
}

# The block is all that is ours in the file.
names() {
  without_block /etc/hosts && echo '# BEGIN chainmail' &&
    awk '$1 != $2 { print $2, $1 }' "$1" && echo '# END chainmail'
}

ssh_config() {
  echo "# Written by $here/boot; edits are lost."
  awk -v user="$NODE_USER" -v key="$key" -v known="$etc/known_hosts" '
    # Older versions of ssh read lines of up to 1023 characters.
    length(line) + length($1) > 900 { say() }
    { line = line " " $1 }
    END { if (line != "") say() }
    function say() {
      print "Host" line
      print "  User " user
      print "  IdentityFile " key
      print "  IdentitiesOnly yes"
      print "  UserKnownHostsFile " known
      print "  GlobalKnownHostsFile /dev/null"
      print "  StrictHostKeyChecking yes"
      print "  UpdateHostKeys no"
      line = ""
    }' "$1"
}

say_changes() {
  awk 'FILENAME == ARGV[1] { new[$1] = $0; next }
       FILENAME == ARGV[2] { id[$2] = $1; next }
       FILENAME == ARGV[3] { why = $0; sub(/^[^ ]* /, "", why); leaving[$1] = printable(why); next }
       { old[$1] = $0 }
       # It goes to logs and terminals.
       function printable(text) { gsub(/[^ -~]/, "?", text); return substr(text, 1, 200) }
       END {
         for (name in new) if (!(name in old)) { split(new[name], f, " "); print "added " name " (" f[2] ", slots=" f[3] ")" }
         for (name in new) if (name in old && new[name] != old[name]) print "changed " name
         for (name in old) if (!(name in new)) print "removed " name ": " (!(name in id) ? \
           "the cloud does not count it as running" : id[name] in leaving ? leaving[id[name]] : "it has no sound record")
       }' "$run/nodes" "$run/members" "$run/leaving" "$etc/nodes" >"$run/said" || return 1
  while IFS= read -r change; do log "hosts: $change"; done <"$run/said"
}

# What workers have stored that are gone for a while: nobody else removes it. Not at once, since one that is about to
# be a member may have stored it before.
forget_absent() {
  touch "$run/absent"
  awk -v now="$(now)" -v own="$id" '
    FILENAME == ARGV[1] { member[$1]; next }
    FILENAME == ARGV[2] { since[$1] = $2; next }
    $1 in member || $1 "" == own "" || $1 in told { next }
    { told[$1]; print $1, ($1 in since ? since[$1] : now) }
  ' "$run/members" "$run/absent" "$run/records" "$run/leaving" >"$run/absent.new" && mv -f "$run/absent.new" "$run/absent"
  while read -r absent since; do
    [ $(($(now) - since)) -ge "$absent_for" ] || continue
    for kind in node leaving; do
      # A store that does not answer for one of them would keep the watch waiting for each.
      echo | put "$kind/$absent" 2>"$run/why.forget" || return 0
    done
    rm -f "$run/read_at"
  done <"$run/absent"
}

# watch_says STATE: what goes on for a while is said once.
watch_says() {
  [ "$1" != "$watch_state" ] || return 0
  case $1 in
    '') log "watch: ${watch_state#*:} again" ;;
    cloud*) log "watch: the cluster does not answer: $(why look); the hostfile stays as it is" ;;
    files*) log "watch: the hosts cannot be written: $(why look)" ;;
  esac
  watch_state=$1
}

master_watch() {
  own_slots
  rm -f "$run/read_at" "$run/absent"
  publish_until=0
  watch_state=''
  while :; do
    started=$(now)
    if ! ask_cloud 2>"$run/why.look"; then
      watch_says 'cloud:the cluster answers'
    elif ! write_files 2>"$run/why.look"; then
      watch_says 'files:the hosts are written'
    else
      watch_says ''
      forget_absent
    fi
    if [ "$started" -ge "$publish_until" ] && publish_login 2>"$run/why.login"; then
      publish_until=$((started + records_every))
    fi
    pause=$((period - ($(now) - started)))
    sleep "$((pause < 1 ? 1 : pause))"
  done
}
