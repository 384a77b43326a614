# shellcheck shell=sh disable=SC2034,SC2154,SC2015,SC2016,SC2153 # names are those of boot and the other files
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# AWS for boot: instance metadata (IMDSv2), an auto-scaling group (GROUP), SSM Parameter Store below /chainmail/CLUSTER,
# CloudFormation's signals (SIGNAL). A worker is named by its instance id: when an instance ends, its address, and with it
# its private DNS name, goes to another one; its id never does.

provider_needs='aws curl'
imds=http://169.254.169.254/latest
store=/chainmail/$CLUSTER

[ -z "$ENDPOINT" ] || export AWS_ENDPOINT_URL="$ENDPOINT"
# boot tries again by itself; what is slow is not worth waiting for.
export AWS_MAX_ATTEMPTS=2 AWS_RETRY_MODE=standard AWS_PAGER='' AWS_METADATA_SERVICE_TIMEOUT=5 AWS_METADATA_SERVICE_NUM_ATTEMPTS=2

check_keys() { [ "$ROLE" = worker ] || check_word GROUP "$GROUP" '.+'; }

# ask_imds WORDS...: curl with a token, of which it makes a new one where there is none. Two may do so at once.
ask_imds() {
  if [ ! -s "$run/token" ]; then
    token_new=$(mktemp "$run/token.chainmail-XXXXXX") && curl -sSf -m 5 --noproxy '*' -X PUT \
      -H 'X-aws-ec2-metadata-token-ttl-seconds: 21600' "$imds/api/token" >"$token_new" &&
      grep -Eqxz '[A-Za-z0-9+/=_.-]+\s?' "$token_new" && mv -f "$token_new" "$run/token" || {
      rm -f "$token_new"
      echo "the metadata server gives no token (IMDSv2)" >&2
      return 2
    }
  fi
  token=$(cat "$run/token")
  curl -sS -m 5 --noproxy '*' -H "X-aws-ec2-metadata-token: $token" "$@" || return 2
}

# of_imds PATH: 1 where there is nothing.
of_imds() {
  for attempt in 1 2; do
    body=$(ask_imds -w '\n%{http_code}' "$imds/$1") || return 2
    case $body in
      *200)
        printf '%s\n' "$body" | sed '$d'
        return 0
        ;;
      *404) return 1 ;;
      *401) forget_token ;;
      *) break ;;
    esac
  done
  echo "the metadata server answers $(printf '%s' "$body" | tail -n 1) for $1" >&2
  return 2
}

# It has run out; one more is asked for where another call has a new one already.
forget_token() { rm -f "$run/token"; }

of_aws() {
  [ -n "$REGION" ] || REGION=$(cat "$run/region" 2>/dev/null) || REGION=$(of_imds meta-data/placement/region) || return 2
  timeout -k 5 30 aws --region "$REGION" --output text --cli-connect-timeout 5 --cli-read-timeout 15 "$@" && return 0
  status=$?
  [ "$status" != 124 ] || echo "aws $1 $2 has not answered within 30 s" >&2
  return 2
}

# Called before all else: the region is asked for once.
whoami() {
  if [ -z "$REGION" ]; then
    of_imds meta-data/placement/region >"$run/region.new" && grep -Eqx '[a-z0-9-]+' "$run/region.new" &&
      mv -f "$run/region.new" "$run/region" || return 2
  fi
  id=$(of_imds meta-data/instance-id) && address=$(of_imds meta-data/local-ipv4) || return 2
  # The master is the machine that the launcher runs on, which it knows by this name.
  [ "$ROLE" = worker ] && echo "$id $id $address" || echo "$id $(uname -n) $address"
}

members() {
  # Its name first, since nothing is also what a group that does not exist has.
  group=$(of_aws autoscaling describe-auto-scaling-groups --auto-scaling-group-names "$GROUP" --query \
    "AutoScalingGroups[].[AutoScalingGroupName, join(' ', Instances[?LifecycleState=='InService'].InstanceId)]") || return 2
  [ -n "$group" ] || {
    echo "there is no auto-scaling group '$GROUP'" >&2
    return 2
  }
  printf '%s\n' "$group" | cut -f 2 | tr ' ' '\n' | awk 'NF { print $1, $1 }'
}

put() {
  value=$(cat)
  if [ -n "$value" ]; then
    of_aws ssm put-parameter --name "$store/$1" --type String --overwrite --value "$value" >/dev/null
    return
  fi
  of_aws ssm delete-parameter --name "$store/$1" 2>"$run/why.delete" && return 0
  grep -q ParameterNotFound "$run/why.delete" && return 0
  cat "$run/why.delete" >&2
  return 2
}

get() {
  case $1 in
    */)
      listed=$(of_aws ssm get-parameters-by-path --path "$store/${1%/}" --query 'Parameters[].[Name, Value]') || return 2
      printf '%s\n' "$listed" | awk -F '\t' -v skip="$((${#store} + ${#1} + 2))" 'NF == 2 { print substr($1, skip), $2 }'
      return
      ;;
  esac
  of_aws ssm get-parameter --name "$store/$1" --query Parameter.Value 2>"$run/why.get" && return 0
  ! grep -q ParameterNotFound "$run/why.get" || return 1
  cat "$run/why.get" >&2
  return 2
}

# Two minutes before a spot instance ends, and earlier when that has become likely. Both by one curl, since this is most of
# what an idle worker does.
notice() {
  for attempt in 1 2; do
    codes=$(ask_imds -w '%{http_code} ' -o "$run/notice.spot" "$imds/meta-data/spot/instance-action" \
      -o "$run/notice.rebalance" "$imds/meta-data/events/recommendations/rebalance") || return 2
    case $codes in
      200*) echo "spot interruption: $(cat "$run/notice.spot")" && return ;;
      '404 200 ') echo "rebalance recommendation: $(cat "$run/notice.rebalance")" && return ;;
      '404 404 ') return 0 ;;
      *401*) forget_token ;;
      *) break ;;
    esac
  done
  echo "the metadata server answers $codes when asked for this machine's end" >&2
  return 2
}

signal() {
  [ -n "$SIGNAL" ] || return 0
  of_aws cloudformation signal-resource --stack-name "$CLUSTER" --logical-resource-id "$SIGNAL" \
    --unique-id "${id:-$(uname -n)}" --status "$1" >/dev/null
}
