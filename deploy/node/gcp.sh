# shellcheck shell=sh disable=SC2034,SC2154,SC2015,SC2016,SC2153 # names are those of boot and the other files
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Google Cloud for boot: the metadata server, a managed instance group (GROUP; of a region where REGION is set, otherwise
# of the machine's zone), and guest attributes as the store: each machine writes its own through the metadata server, and
# nobody can write another one's. Instances need the metadata entry enable-guest-attributes=TRUE.
#
# In node.conf: GROUP for the master; MASTER, the name of the master's instance in the same zone, for workers.

provider_needs='curl python3'
metadata=http://169.254.169.254/computeMetadata/v1/instance
api=${ENDPOINT:-https://compute.googleapis.com}/compute/v1

check_keys() {
  [ "$ROLE" = worker ] && check_word MASTER "$MASTER" '[a-z][a-z0-9-]*' || check_word GROUP "$GROUP" '[a-z][a-z0-9-]*'
}

# of_metadata PATH CURL_OPTION...: 1 where there is nothing.
of_metadata() {
  metadata_path=$1
  shift
  body=$(curl -sS -m 5 --noproxy '*' -w '\n%{http_code}' -H 'Metadata-Flavor: Google' "$@" "$metadata/$metadata_path") ||
    return 2
  case $body in
    *200) printf '%s\n' "$body" | sed '$d' ;;
    *404) return 1 ;;
    *)
      echo "the metadata server answers $(printf '%s' "$body" | tail -n 1) for $metadata_path" >&2
      return 2
      ;;
  esac
}

# of_api WORD ARGUMENT...: as gcp.py says.
of_api() {
  zone=$(of_metadata zone) && token=$(of_metadata service-accounts/default/token) || return 2
  CHAINMAIL_API=$api CHAINMAIL_ZONE=$zone CHAINMAIL_REGION=$REGION CHAINMAIL_TOKEN=$token \
    CHAINMAIL_CACHE=$run/guest-attributes timeout -k 5 60 python3 -B "$here/gcp.py" "$@"
}

whoami() {
  number=$(of_metadata id) && own=$(of_metadata name) && ip=$(of_metadata network-interfaces/0/ip) || return 2
  [ "$ROLE" = worker ] && echo "$number $own $ip" || echo "$number $(uname -n) $ip"
}

members() { of_api members "$GROUP"; }

# What another machine has stored ends with it.
put() {
  value=$(cat)
  case $1 in
    login | "node/$id" | "leaving/$id") ;;
    *) return 0 ;;
  esac
  if [ -n "$value" ]; then
    printf '%s' "$value" | of_metadata "guest-attributes/chainmail/${1%%/*}" -X PUT --data-binary @- >/dev/null
  else
    of_metadata "guest-attributes/chainmail/${1%%/*}" -X DELETE >/dev/null || [ $? = 1 ] || return 2
  fi
}

get() {
  case $1 in
    */) of_api all "$GROUP" "${1%/}" ;;
    login) [ "$ROLE" = worker ] && of_api one "$MASTER" login || of_metadata guest-attributes/chainmail/login ;;
    *) of_metadata "guest-attributes/chainmail/${1%%/*}" ;;
  esac
}

# A live migration takes nothing away.
notice() {
  preempted=$(of_metadata preempted) && event=$(of_metadata maintenance-event) || return 2
  if [ "$preempted" = TRUE ]; then
    echo "preempted"
  elif [ "$event" = TERMINATE_ON_HOST_MAINTENANCE ]; then
    echo "maintenance event: $event"
  fi
}

signal() { :; }
