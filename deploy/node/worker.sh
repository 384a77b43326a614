# shellcheck shell=sh disable=SC2034,SC2154,SC2015,SC2016,SC2153 # names are those of boot and the other files
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# A worker's part of boot: lets the master in, says so, and says when its end is announced.
#
#   $etc/authorized_keys    the only key that NODE_USER can be logged in with here; root's, and not in the home, where
#                           what runs as NODE_USER could add others

host_key=/etc/ssh/ssh_host_ed25519_key.pub
# Alarms that give idle machines back go by processor time, 1 % of a machine that may have two processors: a worker that
# does nothing else has to stay below. A call of a cloud's own program takes a second of it.
notice_every=2
check_every=300
check_again=30

sshd_config() {
  cat <<CONFIG
# Written by $here/boot; edits are lost.
Match User $NODE_USER
  AuthorizedKeysFile $etc/authorized_keys
  AuthorizedKeysCommand none
  AuthenticationMethods publickey
Match all
CONFIG
}

# An sshd without folders of configuration has it at the end of its file, where Match belongs.
write_sshd_config() {
  if grep -qis '^Include[[:space:]]*/etc/ssh/sshd_config.d/' /etc/ssh/sshd_config; then
    mkdir -p /etc/ssh/sshd_config.d
    sshd_config | replace /etc/ssh/sshd_config.d/50-chainmail.conf 644
    return
  fi
  {
    without_block /etc/ssh/sshd_config
    echo '# BEGIN chainmail'
    sshd_config
    echo '# END chainmail'
  } | replace /etc/ssh/sshd_config
}

# It is not enough that sshd runs: the key that it shows is the one that the master will be told.
does_sshd_answer() {
  shown=$(ssh-keyscan -T 5 -t ed25519 "$address" | awk '$2 == "ssh-ed25519" { print $2, $3; exit }')
  [ -n "$shown" ] || {
    echo "no sshd shows an ed25519 key at port 22 of $address; sshd -t says: $(sshd -t 2>&1 | tr -s '@\r\n' ' ')" >&2
    return 1
  }
  [ "$shown" = "$(cut -d ' ' -f 1,2 "$host_key")" ] || {
    echo "the sshd at $address does not show the key of $host_key" >&2
    return 1
  }
}

start_sshd() {
  ssh-keygen -A >/dev/null 2>"$run/why.sshd" || fail no-sshd "host keys cannot be made: $(why sshd)"
  [ -s "$host_key" ] || ssh-keygen -y -P '' -f "${host_key%.pub}" 2>"$run/why.sshd" | replace "$host_key" 644
  [ -s "$host_key" ] || fail no-sshd "there is no $host_key, and it cannot be made: $(why sshd)"
  write_sshd_config || fail no-sshd "sshd cannot be configured below /etc/ssh"
  mkdir -p /run/sshd
  sshd -t 2>"$run/why.sshd" || fail no-sshd "sshd refuses its configuration: $(why sshd)"
  if is_systemd; then
    unit=ssh
    systemctl cat ssh.service >/dev/null 2>&1 || unit=sshd
    systemctl enable "$unit" >/dev/null 2>&1
    systemctl reload-or-restart "$unit" 2>"$run/why.sshd" || fail no-sshd "$(why sshd); see: systemctl status $unit"
  elif running=$(cat /run/sshd.pid 2>/dev/null) && [ "$(cat "/proc/$running/comm" 2>/dev/null)" = sshd ]; then
    kill -HUP "$running"
  else
    "$(command -v sshd)" 2>"$run/why.sshd" 3>&- 8>&- || fail no-sshd "$(why sshd)"
  fi
  retry 30 sshd does_sshd_answer || fail no-sshd "$(why sshd)"
}

# The line of "login" becomes the file, if it is one.
install_login() {
  login=$(get login) || {
    [ $? != 1 ] || echo "the master has not stored its key yet" >&2
    return 1
  }
  printf '%s\n' "$login" | awk '{
    is_sound = NR == 1 && NF == 3 && $1 ~ /^[0-9A-Fa-f.:]+$/ && $2 == "ssh-ed25519" && $3 ~ /^[A-Za-z0-9+\/=]+$/
    if (is_sound) print "from=\"" $1 "\",restrict,pty " $2 " " $3 " chainmail-master"
  } END { exit !is_sound }' >"$run/authorized_keys" || {
    echo "what is stored as the master's key is none" >&2
    return 1
  }
  replace "$etc/authorized_keys" 644 <"$run/authorized_keys"
}

publish_node() {
  record="$name $address $slots $(cut -d ' ' -f 1,2 "$host_key")"
  stored=$(get "node/$id") || [ $? = 1 ] || return 2
  [ "$stored" = "$record" ] || printf '%s\n' "$record" | put "node/$id"
}

worker_set_up() {
  wait_for_shared
  make_user
  start_sshd
  retry "$WAIT" login install_login || fail no-login "no login key of the master within $WAIT s: $(why login)"
  # The master makes it before it stores its key.
  [ -n "$SHARED" ] || make_home
  own_slots
  retry "$RETRY_FOR" store publish_node || fail no-store "this node cannot be announced: $(why store)"
}

# Both what is said and what is taken back: maintenance may be called off.
tell_notice() {
  reason=$(notice 2>"$run/why.notice") || {
    trouble=$(why notice)
    return
  }
  [ -z "$reason" ] || reason=$(printf '%s' "$reason" | tr -cd '[:print:]' | cut -c 1-200)
  [ "$reason" != "$told" ] || return
  printf '%s\n' "$reason" | put "leaving/$id" 2>"$run/why.leaving" || {
    trouble=$(why leaving)
    return
  }
  told=$reason
  [ -n "$reason" ] && log "watch: this node is leaving: $reason" || log "watch: this node stays after all"
}

# The master may be another one by now, or may have forgotten this node.
keep_known() {
  [ "$(now)" -ge "$check_at" ] || return
  check_at=$(($(now) + check_every))
  install_login 2>"$run/why.login" || trouble=$(why login)
  publish_node 2>"$run/why.store" || trouble=$(why store)
  [ -z "$trouble" ] || check_at=$(($(now) + check_again))
}

worker_watch() {
  own_slots
  # What is not known is said again, since it might stand there for ever.
  told=$(get "leaving/$id" 2>"$run/why.leaving") || { [ $? = 1 ] && told='' || told=unknown; }
  check_at=$(now)
  failing=''
  while :; do
    trouble=''
    tell_notice
    keep_known
    if [ -n "$trouble" ] && [ -z "$failing" ]; then
      log "watch: the cloud does not answer: $trouble"
    elif [ -z "$trouble" ] && [ -n "$failing" ]; then
      log "watch: the cloud answers again"
    fi
    failing=$trouble
    sleep "$notice_every"
  done
}
