# shellcheck shell=sh disable=SC2034,SC2154,SC2015,SC2016,SC2153 # names are those of boot and the other files
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Azure for boot: the metadata service, a scale set of flexible orchestration, whose machines are virtual machines of
# their own, and tags of these as the store: one request lists all of them. The machines need a managed identity.
#
# In node.conf: GROUP=RESOURCE_GROUP/SCALE_SET for the master; MASTER=RESOURCE_GROUP/NAME, the master's virtual machine,
# for workers.

provider_needs='curl python3'
metadata=http://169.254.169.254/metadata
api=${ENDPOINT:-https://management.azure.com}

check_keys() {
  machines='[^/[:space:]]+/[^/[:space:]]+'
  [ "$ROLE" = worker ] && check_word MASTER "$MASTER" "$machines" || check_word GROUP "$GROUP" "$machines"
}

of_metadata() {
  curl -sSf -m 5 --noproxy '*' -H 'Metadata: true' "$metadata/$1"
}

# with_own WORD ARGUMENT...: as azure.py says; of_api for words that ask Azure Resource Manager.
with_own() {
  own=$(of_metadata 'instance?api-version=2021-02-01') || return 2
  CHAINMAIL_API=$api CHAINMAIL_OWN=$own CHAINMAIL_TOKEN=${token:-} timeout -k 5 60 python3 -B "$here/azure.py" "$@"
}

of_api() {
  token=$(of_metadata 'identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fmanagement.azure.com%2F') ||
    return 2
  with_own "$@"
}

whoami() {
  who=$(with_own whoami) || return 2
  # The master is the machine that the launcher runs on, which it knows by this name.
  [ "$ROLE" = worker ] && echo "$who" || echo "$who" | awk -v name="$(uname -n)" '{ print $1, name, $3 }'
}

members() { of_api members "$GROUP"; }

# What another machine has stored ends with it.
put() {
  value=$(cat)
  case $1 in
    login | "node/$id" | "leaving/$id") of_api put "chainmail-${1%%/*}" "$value" ;;
  esac
}

get() {
  case $1 in
    */) of_api all "$GROUP" "chainmail-${1%/}" ;;
    login) [ "$ROLE" = worker ] && of_api one "$MASTER" chainmail-login || of_api one '' chainmail-login ;;
    *) of_api one '' "chainmail-${1%%/*}" ;;
  esac
}

notice() {
  events=$(of_metadata 'scheduledevents?api-version=2020-07-01') || return 2
  with_own notice "$events"
}

signal() { :; }
