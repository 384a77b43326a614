#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Longer than 500 lines: a user runs it by hand as one file, and its three parts share their helpers.
#
# What Chainmail's launcher makes of jobs of a real Slurm or Grid Engine, as an ordinary user on a
# host that submits:
#   forms    ranks and hosts in each form of allocation, by sbatch, salloc and qsub, compared with
#            srun's own tasks and with Grid Engine's $PE_HOSTFILE
#   digest   the same training under the launcher, srun and Open MPI's mpirun ends with the same
#            bits
#   ends     scancel, time limits, signals, requeue, a node without power, qdel, h_rt, s_rt: what
#            reaches ranks, states and exit codes, seconds, what is left
#
#   tests/soak/launcher/scheduler_jobs.sh [forms] [digest] [ends]       default: all of them
#
#   LAUNCHER      the launcher (default build/bin/launcher), on a file system that all nodes share
#   OUT           a folder for the jobs' output, shared too (default: the working directory)
#   TRAIN_MNIST   the program of digest (default build/bin/train_mnist)
#   MNIST         folder of MNIST's IDX files; without it digest is skipped
#   MPIRUN        Open MPI's mpirun with its options (default mpirun)
#   POWEROFF      a command that takes the power from the node that is its last word; without it
#                 these checks are skipped; of four nodes with Slurm it takes two
#
# Needs three free nodes with four processors, and nothing else of this user on them. Some 6
# minutes with Slurm and 5 with Grid Engine. Exit code 1 when a check failed, 77 where there is no
# scheduler.
set -uo pipefail

launcher=$(readlink -f "${LAUNCHER:-build/bin/launcher}")
train=$(readlink -f "${TRAIN_MNIST:-build/bin/train_mnist}")
failures=0
work=$(mktemp -d "${OUT:-$PWD}/scheduler-jobs.XXXXXX") || exit 1
submitted=()
trap 'clean_up' EXIT
trap 'exit 130' INT TERM HUP

clean_up() {
  local job
  for job in ${submitted[@]+"${submitted[@]}"}; do
    "$cancel" "$job" >/dev/null 2>&1
  done
  rm -rf "$work"
}

cancel=true

ok() {
  printf 'ok      %s\n' "$*"
}

fail() {
  printf 'FAILED  %s\n' "$*"
  failures=$((failures + 1))
}

skipped() {
  printf 'skipped %s\n' "$*"
}

# wait_for SECONDS COMMAND...: until the command succeeds.
wait_for() {
  local end=$((SECONDS + $1 + 1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.2
  done
}

# one_line FILE...
one_line() {
  cat "$@" 2>/dev/null | paste -sd' '
}

# A rank of the checks of endings writes down what reaches it in FOLDER/log.RANK: words with times.
# It ends with 0 half a second after SIGTERM, or when FOLDER/stop is there; a stubborn one only
# then.
cat >"$work/ranks.sh" <<'RANKS'
folder=$1
say() { echo "$EPOCHREALTIME $*" >>"$folder/log.$RANK"; }
if [ -e "$folder/second" ]; then
  say again
  exit 0
fi
trap 'say TERM; [ "$2" = stubborn ] || { sleep 0.5; say saved; exit 0; }' TERM
trap 'say USR1' USR1
trap 'say USR2; [ "$2" != usr2 ] || { sleep 2; say saved; exit 0; }' USR2
setsid sleep 1000 &
say up
until [ -e "$folder/stop" ]; do sleep 0.2; done
say end
RANKS

# What this user has on a node: processes and folders of Chainmail's jobs.
cat >"$work/look.sh" <<'LOOK'
host=$(hostname)
user=$(id -u)
all=$(ps -u "$user" -o pid=,ppid=,stat=,args=)
echo "$all" | awk -v me=$$ '$1 != me && $2 != me && $3 !~ /^Z/' | sed "s/^/process $host: /"
find /tmp /dev/shm -maxdepth 1 -name 'chainmail-*' -user "$user" 2>/dev/null |
  sed "s/^/folder $host: /"
LOOK

# ranks_with WORD FOLDER: how many ranks wrote it.
ranks_with() {
  grep -l " $1\$" "$2"/log.* 2>/dev/null | wc -l
}

# all_wrote RANKS WORD FOLDER
all_wrote() {
  [ "$(ranks_with "$2" "$3")" = "$1" ]
}

# seconds_of WORD FOLDER START: first and last time that a rank wrote it.
seconds_of() {
  cat "$2"/log.* 2>/dev/null | awk -v word="$1" -v start="$3" '$2 == word {
      t = $1 - start
      if (!n++ || t < first) first = t
      if (n == 1 || t > last) last = t
    } END { if (n) printf "%.1f to %.1f s", first, last; else printf "never" }'
}

# most_of WORD FOLDER: the largest count of a rank.
most_of() {
  grep -c " $1\$" "$2"/log.* 2>/dev/null | sed 's/.*://' | sort -n | tail -n 1
}

# since START
since() {
  awk -v a="$EPOCHREALTIME" -v b="$1" 'BEGIN { printf "%.1f", a - b }'
}

# check_left NAME NODES: processes must be gone, folders with the next job.
check_left() {
  local name=$1 nodes=$2 folders again
  sleep 1
  for again in 1 2 3 4 5; do
    look_at "$nodes" >"$work/left" 2>&1
    grep -q '^process' "$work/left" || break
    sleep 1
  done
  folders=$(grep -c '^folder' "$work/left")
  if grep -v '^folder' "$work/left" | grep -q .; then
    fail "$name: left after $again s: $(grep -v '^folder' "$work/left" | head -n 6 | one_line)"
    return
  fi
  next_job "$nodes" >"$work/next" 2>&1 || fail "$name: the next job: $(one_line "$work/next")"
  look_at "$nodes" >"$work/left" 2>&1
  if [ -s "$work/left" ]; then
    fail "$name: after the next job: $(one_line "$work/left")"
  else
    ok "$name: left: 0 processes, $folders folders, 0 folders after the next job"
  fi
}

# ---------------------------------------------------------------------------------------- forms

# Arguments: launcher, file for srun's lines, file for the launcher's, srun's options.
cat >"$work/pair.sh" <<'PAIR'
launcher=$1 srun=$2 ranks=$3
shift 3
timeout -k 5 60 srun "$@" sh -c 'echo $SLURM_PROCID@$(hostname)' </dev/null >"$srun" 2>"$srun.err"
timeout -k 5 60 "$launcher" sh -c 'echo $RANK@$(hostname)' </dev/null >"$ranks" 2>"$ranks.err"
echo "$?" >"$ranks.code"
PAIR

# same_places NAME: the launcher's ranks are where srun's tasks of these numbers were.
same_places() {
  local name=$1 want got
  want=$(sort -n "$work/srun" | one_line)
  got=$(sort -n "$work/ranks" | one_line)
  if [ -n "$want" ] && [ "$want" = "$got" ] && [ "$(cat "$work/ranks.code")" = 0 ]; then
    ok "$name: $got"
  else
    fail "$name: code $(cat "$work/ranks.code"), '$got', by srun '$want'" \
      "$(one_line "$work/ranks.err" "$work/srun.err" "$work/job.out")"
  fi
  rm -f "$work"/srun* "$work"/ranks "$work"/ranks.err "$work"/ranks.code "$work/job.out"
}

# slurm_form SRUN_OPTIONS OPTIONS...
slurm_form() {
  local steps=$1 job
  shift
  if ! sbatch --test-only "$@" "$work/form.sh" >"$work/submit" 2>&1; then
    skipped "slurm: $*: $(one_line "$work/submit")"
    return
  fi
  # shellcheck disable=SC2086
  printf '#!/bin/bash\nbash "%s" "%s" "%s" "%s" %s\n' \
    "$work/pair.sh" "$launcher" "$work/srun" "$work/ranks" "$steps" >"$work/form.sh"
  job=$(sbatch --parsable -o "$work/job.out" "$@" "$work/form.sh" 2>"$work/submit")
  submitted+=("$job")
  if wait_for 120 slurm_gone "$job"; then
    same_places "slurm: sbatch $*"
  else
    fail "slurm: sbatch $*: not over after 120 s: $(one_line "$work/submit") $(state_of "$job")"
    scancel "$job"
    wait_for 60 slurm_gone "$job"
  fi
  # shellcheck disable=SC2086
  timeout -k 5 150 salloc --immediate=60 "$@" bash "$work/pair.sh" "$launcher" "$work/srun" \
    "$work/ranks" $steps >"$work/job.out" 2>&1 </dev/null
  same_places "slurm: salloc $*"
}

slurm_gone() {
  ! squeue -h -j "$1" -o %T 2>/dev/null | grep -q .
}

# state_of JOB: state, exit code and signal.
state_of() {
  scontrol show job -o "$1" 2>/dev/null |
    sed -n 's/.*JobState=\([^ ]*\).* ExitCode=\([^ ]*\).*/\1 \2/p' | tail -n 1
}

slurm_forms() {
  local main wide last
  local -a names
  printf '#!/bin/bash\n' >"$work/form.sh"
  main=$(sinfo -h -o %P | grep '\*' | tr -d '*' | head -n 1)
  wide=$(sinfo -h -o '%D %R' | sort -n | tail -n 1 | cut -d' ' -f2)
  mapfile -t names < <(sinfo -h -N -p "$main" -o %N | sort -uV)
  # A node with more processors than the others, where there is one.
  last=$(sinfo -h -N -p "$wide" -o '%c %N' | sort -n | tail -n 1 | cut -d' ' -f2)
  slurm_form "" -n 6
  slurm_form "" -N 3 --ntasks-per-node=2
  slurm_form "" -N 2
  slurm_form "" -n 5
  slurm_form "" -N 3 -n 5
  slurm_form "" -p "$wide" -N 4 --exclusive
  slurm_form "" -p "$wide" -n 20
  slurm_form "" -p "$wide" -N 2 -w "${names[2]},$last" -n 12
  slurm_form "" -w "${names[0]},${names[2]}" -N 2 -n 4
  slurm_form "" -N 2 -n 2 -c 2
  slurm_form "" -N 2 --gpus-per-node=2 --ntasks-per-node=2
  slurm_form "" -N 1
  slurm_form "" -N 3 -n 6 -m cyclic
  slurm_form "" -N 3 --ntasks-per-node=2 -m cyclic
  slurm_form "--het-group=0,1" -N1 -n1 : -N2 --ntasks-per-node=2
}

# Arguments: launcher, folder. Hosts with their slots, and where ranks were.
cat >"$work/slots.sh" <<'SLOTS'
#!/bin/bash
task=$2/$SGE_TASK_ID
if [ -n "${PE_HOSTFILE:-}" ]; then
  awk '{ sub(/\..*/, "", $1); n[$1] += $2 } END { for (h in n) print h, n[h] }' "$PE_HOSTFILE"
else
  echo "$(hostname -s) 1"
fi | sort >"$task.slots"
timeout -k 5 90 "$1" sh -c 'echo $RANK@$(hostname -s)' </dev/null >"$task.ranks" 2>"$task.err"
echo "$?" >"$task.code"
SLOTS

# grid_form TASKS OPTIONS...
grid_form() {
  local tasks=$1 job task seen=0 folder got count name
  shift
  name="grid engine: qsub ${*:-without -pe}"
  folder=$(mktemp -d "$work/form.XXXXXX")
  job=$(qsub -terse -cwd -j y -o "$folder/job.out" "$@" "$work/slots.sh" "$launcher" "$folder" \
    2>"$folder/submit")
  job=${job%%.*}
  if [ -z "$job" ]; then
    skipped "$name: $(one_line "$folder/submit")"
    return
  fi
  submitted+=("$job")
  if ! wait_for 150 grid_gone "$job"; then
    fail "$name: not over after 150 s: $(qstat -j "$job" 2>&1 | grep -A3 scheduling | one_line)"
    qdel "$job" >/dev/null
    wait_for 60 grid_gone "$job"
    return
  fi
  for task in "$folder"/*.slots; do
    task=${task%.slots}
    [ -e "$task.code" ] || continue
    seen=$((seen + 1))
    got=$(cut -d@ -f2 "$task.ranks" | sort | uniq -c | awk '{ print $2, $1 }')
    count=$(wc -l <"$task.ranks")
    if [ "$(cat "$task.code")" = 0 ] && [ "$got" = "$(cat "$task.slots")" ] &&
      [ "$(cut -d@ -f1 "$task.ranks" | sort -n | one_line)" = "$(seq 0 $((count - 1)) | one_line)" ]
    then
      ok "$name: $(tr ' ' : <"$task.slots" | one_line), ranks per host too"
    else
      fail "$name: code $(cat "$task.code"), ranks '$(one_line "$task.ranks")', slots" \
        "'$(one_line "$task.slots")' $(one_line "$task.err")"
    fi
  done
  [ $seen = "$tasks" ] || fail "$name: $seen of $tasks tasks: $(one_line "$folder/job.out")"
}

grid_gone() {
  ! qstat -j "$1" >/dev/null 2>&1
}

grid_forms() {
  grid_form 1 -pe mpi 6
  grid_form 1 -pe mpi2 6
  grid_form 1 -pe mpi_rr 5
  grid_form 1 -pe mpi 2-12
  grid_form 1 -pe mpi_two 14
  grid_form 1 -pe smp 3
  grid_form 1
  grid_form 2 -t 1-2 -pe mpi2 2
  grid_form 1 -l f_node=2
}

# --------------------------------------------------------------------------------------- digest

# The first 4000 images to train with and 1000 to test.
cut_mnist() {
  mkdir -p "$work/mnist"
  python3 - "$1" "$work/mnist" <<'CUT'
import gzip, os, struct, sys

for name, count in (("train-images-idx3-ubyte", 4000), ("train-labels-idx1-ubyte", 4000),
                    ("t10k-images-idx3-ubyte", 1000), ("t10k-labels-idx1-ubyte", 1000)):
    path = os.path.join(sys.argv[1], name)
    with (gzip.open(path + ".gz") if os.path.exists(path + ".gz") else open(path, "rb")) as file:
        data = file.read()
    header = 4 + 4 * data[3]
    size = (len(data) - header) // struct.unpack(">I", data[4:8])[0]
    with gzip.open(os.path.join(sys.argv[2], name + ".gz"), "wb") as file:
        file.write(data[:4] + struct.pack(">I", count) + data[8:header + count * size])
CUT
}

# Arguments: folder, launcher, program, data, mpirun. Each way twice: threads as they come, and one.
cat >"$work/digest.sh" <<'DIGEST'
#!/bin/bash
folder=$1 launcher=$2
read -ra mpirun <<<"$5"
# shellcheck disable=SC2016
program=(sh -c 'echo "host $(hostname)"; exec "$0" "$@"' "$3" --data "$4" --epoch 2 --unit 100
  --batchsize 50 --verify)
way() {
  local name=$1 start=$EPOCHREALTIME
  shift
  timeout -k 5 150 "$@" --out "$folder/$name" </dev/null >"$folder/$name.log" 2>&1
  echo "$name $? $(awk -v a="$EPOCHREALTIME" -v b="$start" 'BEGIN { printf "%.1f", a - b }')" \
    "$(grep -o 'digest [0-9a-f]* on [0-9]* ranks' "$folder/$name.log")" \
    "and $(grep '^host ' "$folder/$name.log" | sort -u | wc -l) nodes" >>"$folder/ways"
}
way launcher "$launcher" "${program[@]}"
[ -z "${SLURM_JOB_ID:-}" ] || way srun srun "${program[@]}"
command -v "${mpirun[0]}" >/dev/null && way mpirun "${mpirun[@]}" -n 4 "${program[@]}"
export OMP_NUM_THREADS=1
way launcher-1 "$launcher" -x OMP_NUM_THREADS=1 "${program[@]}"
[ -z "${SLURM_JOB_ID:-}" ] || way srun-1 srun "${program[@]}"
command -v "${mpirun[0]}" >/dev/null &&
  way mpirun-1 "${mpirun[@]}" -n 4 -x OMP_NUM_THREADS=1 "${program[@]}"
true
DIGEST

# check_digest NAME COMMAND...: submits digest.sh and waits for it.
check_digest() {
  local name=$1 way code took digest bad=
  shift
  if [ -z "${MNIST:-}" ] || [ ! -x "$train" ]; then
    skipped "$name: digest: no MNIST or TRAIN_MNIST"
    return
  fi
  cut_mnist "$MNIST" || { fail "$name: digest: no data"; return; }
  rm -rf "$work/digest"
  mkdir "$work/digest"
  timeout -k 5 600 "$@" "$work/digest.sh" "$work/digest" "$launcher" "$train" "$work/mnist" \
    "${MPIRUN:-mpirun}" >"$work/digest.out" 2>&1 </dev/null
  while read -r way code took digest; do
    if [ "$code" = 0 ] && [ -n "$digest" ]; then
      ok "$name: digest: $way: $digest, $took s"
    else
      bad=1
      fail "$name: digest: $way: code $code: $(tail -n 5 "$work/digest/$way.log")"
    fi
  done <"$work/digest/ways"
  if [ -z "$bad" ] && [ "$(awk '{ print $5 }' "$work/digest/ways" | sort -u | wc -l)" = 1 ] &&
    ! grep -qv ' on 4 ranks and 2 nodes$' "$work/digest/ways"; then
    ok "$name: digest: the same bits in $(wc -l <"$work/digest/ways") runs"
  else
    fail "$name: digest: $(one_line "$work/digest/ways" "$work/digest.out")"
  fi
}

# ------------------------------------------------------------------------------ endings of Slurm

look_at() {
  local count
  count=$(scontrol show hostnames "$1" | wc -l)
  timeout -k 5 90 srun --immediate=60 --quiet -N "$count" -w "$1" --ntasks-per-node=1 \
    bash "$work/look.sh" </dev/null
}

next_job() {
  local count
  count=$(scontrol show hostnames "$1" | wc -l)
  timeout -k 5 90 salloc --immediate=60 -N "$count" -w "$1" --ntasks-per-node=1 \
    "$launcher" sleep 2 </dev/null
}

# slurm_job RANKS HOW RANK_MODE LAUNCHER_OPTIONS OPTIONS...: sets job, folder, nodes; the ranks run.
# HOW is exec, plain, or code, which writes the launcher's exit code down.
slurm_job() {
  local ranks=$1 how=$2 mode=$3 words=$4 line
  shift 4
  folder=$(mktemp -d "$work/end.XXXXXX")
  line="\"$launcher\" $words bash \"$work/ranks.sh\" \"$folder\" \"$mode\""
  {
    echo '#!/bin/bash'
    echo "[ \"\${SLURM_RESTART_COUNT:-0}\" = 0 ] || : >\"$folder/second\""
    case $how in
      exec) echo "exec $line" ;;
      plain) printf '%s\necho after\n' "$line" ;;
      code) printf '%s 2>"%s/err"\ncode=$?\n' "$line" "$folder"
        # shellcheck disable=SC2016
        printf 'echo "$code $EPOCHREALTIME" >"%s/code"\nexit $code\n' "$folder" ;;
    esac
  } >"$folder/job.sh"
  job=$(sbatch --parsable --open-mode=append -o "$folder/job.out" "$@" "$folder/job.sh" 2>&1)
  submitted+=("$job")
  if ! wait_for 90 all_wrote "$ranks" up "$folder"; then
    fail "slurm: $*: no $ranks ranks after 90 s: $job $(state_of "$job")" \
      "$(one_line "$folder/job.out")"
    scancel "$job"
    return 1
  fi
  nodes=$(squeue -h -j "$job" -o %N)
}

# slurm_over SECONDS: waits for the end; sets took, since start.
slurm_over() {
  wait_for "$1" slurm_gone "$job" || { scancel "$job"; wait_for 60 slurm_gone "$job"; }
  took=$(since "$start")
}

end_scancel() {
  local job folder nodes start took
  slurm_job 6 exec "" "" -N3 --ntasks-per-node=2 || return
  start=$EPOCHREALTIME
  scancel "$job"
  slurm_over 60
  local text
  text="SIGTERM at $(seconds_of TERM "$folder" "$start"), $(ranks_with saved "$folder") of 6 ranks \
saved, $(state_of "$job"), over after $took s"
  if all_wrote 6 saved "$folder" && [[ $(state_of "$job") = CANCELLED* ]]; then
    ok "slurm: scancel: $text"
  else
    fail "slurm: scancel: $text: $(one_line "$folder/job.out")"
  fi
  check_left "slurm: scancel" "$nodes"
}

end_scancel_plain() {
  local job folder nodes start took
  slurm_job 6 plain "" "" -N3 --ntasks-per-node=2 || return
  start=$EPOCHREALTIME
  scancel "$job"
  slurm_over 60
  ok "slurm: scancel, no exec in the script: SIGTERM at $(seconds_of TERM "$folder" "$start")," \
    "$(ranks_with saved "$folder") of 6 saved, $(state_of "$job"), over after $took s"
  check_left "slurm: scancel, no exec" "$nodes"
}

# Ranks that do not end on SIGTERM have until the launcher's --grace.
end_scancel_stubborn() {
  local job folder nodes start took text
  slurm_job 6 exec stubborn "--grace 2" -N3 --ntasks-per-node=2 || return
  start=$EPOCHREALTIME
  scancel "$job"
  slurm_over 90
  text="SIGTERM at $(seconds_of TERM "$folder" "$start"), over after $took s, $(state_of "$job")"
  if all_wrote 6 TERM "$folder" && [ "$(since "$start" | cut -d. -f1)" -lt 15 ]; then
    ok "slurm: scancel, ranks go on, --grace 2: $text"
  else
    fail "slurm: scancel, ranks go on, --grace 2: $text: $(one_line "$folder/job.out")"
  fi
  check_left "slurm: scancel, ranks go on" "$nodes"
}

# Both at once: they wait for minutes.
end_time_limit() {
  local job folder nodes start took text i
  local -a jobs folders starts names=("--signal=B:USR1@30" "--signal=USR1@30")
  for i in 0 1; do
    slurm_job 4 exec "" "" -N2 --ntasks-per-node=2 --time=1 "${names[i]}" || return
    jobs[i]=$job
    folders[i]=$folder
    starts[i]=$(sort -n "$folder"/log.* | head -n 1 | cut -d' ' -f1)
  done
  for i in 0 1; do
    job=${jobs[i]} folder=${folders[i]} start=${starts[i]}
    slurm_over 240
    text="SIGUSR1 at $(seconds_of USR1 "$folder" "$start") (at most $(most_of USR1 "$folder") \
each), SIGTERM at $(seconds_of TERM "$folder" "$start"), $(ranks_with saved "$folder") of 4 saved, \
$(state_of "$job"), seen over after $took s"
    if all_wrote 4 USR1 "$folder" && [ "$(most_of USR1 "$folder")" = 1 ] &&
      all_wrote 4 saved "$folder" && [[ $(state_of "$job") = TIMEOUT* ]]; then
      ok "slurm: --time=1 ${names[i]}: $text"
    else
      fail "slurm: --time=1 ${names[i]}: $text: $(one_line "$folder/job.out")"
    fi
  done
  check_left "slurm: --time=1" "$nodes"
}

# signal_job NAME SIGNAL MOST COMMAND...: all six ranks get it, none more often than MOST times.
signal_job() {
  local name=$1 signal=$2 most=$3 text log
  shift 3
  for log in "$folder"/log.*; do
    mv "$log" "$folder/old.${log##*/log.}.$signal.$RANDOM"
  done
  start=$EPOCHREALTIME
  "$@" 2>"$work/signal"
  wait_for 10 all_wrote 6 "$signal" "$folder"
  sleep 2
  text="$(ranks_with "$signal" "$folder") of 6 ranks, $(seconds_of "$signal" "$folder" "$start"), \
at most $(most_of "$signal" "$folder") each"
  if all_wrote 6 "$signal" "$folder" && [ "$(most_of "$signal" "$folder")" -le "$most" ] &&
    [ "$(squeue -h -j "$job" -o %T)" = RUNNING ]; then
    ok "slurm: $name: $text"
  else
    fail "slurm: $name: $text; $(squeue -h -j "$job" -o %T)" \
      "$(one_line "$folder/job.out" "$work/signal")"
  fi
}

end_signals() {
  local job folder nodes start took step
  slurm_job 6 exec "" "" -N3 --ntasks-per-node=2 || return
  signal_job "scancel --signal=USR1 JOB" USR1 1 scancel --signal=USR1 "$job"
  # Slurm may tell the ranks beside the launcher itself, and the launcher tells them, too.
  signal_job "scancel --signal=USR2 --full JOB" USR2 2 scancel --signal=USR2 --full "$job"
  signal_job "scancel --signal=USR1 --batch JOB" USR1 1 scancel --signal=USR1 --batch "$job"
  step=$(squeue -h -s -j "$job" -o %i | grep '\.[0-9]*$' | tail -n 1)
  signal_job "scancel --signal=USR2 STEP" USR2 1 scancel --signal=USR2 "$step"
  : >"$folder/stop"
  start=$EPOCHREALTIME
  slurm_over 60
  if [ "$(state_of "$job")" = "COMPLETED 0:0" ]; then
    ok "slurm: a job after these signals: $(state_of "$job"), over after $took s"
  else
    fail "slurm: a job after these signals: $(state_of "$job") $(one_line "$folder/job.out")"
  fi
  check_left "slurm: signals" "$nodes"
}

slurm_pending() {
  [ "$(squeue -h -j "$1" -o %T)" = PENDING ]
}

end_requeue() {
  local job folder nodes start took text restarts
  slurm_job 4 exec "" "" -N2 --ntasks-per-node=2 --requeue || return
  start=$EPOCHREALTIME
  scontrol requeue "$job"
  if wait_for 60 slurm_pending "$job"; then
    text="SIGTERM at $(seconds_of TERM "$folder" "$start"), $(ranks_with saved "$folder") of 4 \
saved, pending after $(since "$start") s"
  else
    text="not pending after 60 s"
  fi
  # Slurm lets such a job wait for two minutes.
  wait_for 10 scontrol update JobId="$job" StartTime=now
  slurm_over 200
  restarts=$(scontrol show job -o "$job" | grep -o 'Restarts=[0-9]*')
  text+=", $(ranks_with again "$folder") of 4 ranks again, $restarts, $(state_of "$job"), over \
after $took s"
  if all_wrote 4 again "$folder" && [ "$(state_of "$job")" = "COMPLETED 0:0" ]; then
    ok "slurm: scontrol requeue: $text"
  else
    fail "slurm: scontrol requeue: $text: $(one_line "$folder/job.out")"
  fi
  check_left "slurm: requeue" "$nodes"
}

end_power() {
  local job folder nodes start took text host code when rest words
  if [ -z "${POWEROFF:-}" ]; then
    skipped "slurm: a node without power: no POWEROFF"
    return
  fi
  read -ra words <<<"$POWEROFF"
  slurm_job 6 code "" "" -N3 --ntasks-per-node=2 || return
  host=$(scontrol show hostnames "$nodes" | tail -n 1)
  start=$EPOCHREALTIME
  "${words[@]}" "$host" >"$work/power" 2>&1 || fail "POWEROFF: $(one_line "$work/power")"
  wait_for 60 test -s "$folder/code"
  read -r code when <"$folder/code"
  text="code $code $(awk -v a="$when" -v b="$start" 'BEGIN { printf "%.1f", a - b }') s after it: \
$(grep -m 1 "$host" "$folder/err")"
  if [ "$code" = 125 ] && grep -q "$host" "$folder/err"; then
    ok "slurm: a node without power: $text"
  else
    fail "slurm: a node without power: $text $(one_line "$folder/err")"
  fi
  slurm_over 120
  echo "        slurm: a node without power: $(state_of "$job"), over after $took s"
  rest=$(scontrol show hostnames "$nodes" | grep -vx "$host" | paste -sd,)
  check_left "slurm: a node without power" "$rest"
}

# A launcher that may start ranks anew waits for the node, until Slurm gives the job other nodes.
end_power_requeue() {
  local job folder nodes start took text host wide words free
  wide=$(sinfo -h -o '%D %R' | sort -n | tail -n 1 | cut -d' ' -f2)
  free=$(sinfo -h -N -p "$wide" -t idle -o %N | wc -l)
  if [ -z "${POWEROFF:-}" ] || [ "$free" -lt 3 ]; then
    skipped "slurm: a node without power, --requeue: no POWEROFF, or not three free nodes"
    return
  fi
  read -ra words <<<"$POWEROFF"
  slurm_job 4 exec "" "--max-restarts 2" -p "$wide" -N2 --ntasks-per-node=2 --requeue || return
  host=$(scontrol show hostnames "$nodes" | tail -n 1)
  start=$EPOCHREALTIME
  "${words[@]}" "$host" >"$work/power" 2>&1 || fail "POWEROFF: $(one_line "$work/power")"
  if wait_for 400 slurm_pending_or_gone "$job"; then
    text="$(squeue -h -j "$job" -o %T) after $(since "$start") s"
  else
    text="not pending after 400 s"
  fi
  wait_for 10 scontrol update JobId="$job" StartTime=now
  slurm_over 200
  nodes=$(scontrol show job -o "$job" | sed 's/.* NodeList=\([^ ]*\).*/\1/')
  text+=", $(ranks_with again "$folder") of 4 ranks again on $nodes, $(state_of "$job"), over \
after $took s"
  if all_wrote 4 again "$folder" && [ "$(state_of "$job")" = "COMPLETED 0:0" ]; then
    ok "slurm: a node without power, --requeue, --max-restarts: $text"
    SLURM_PARTITION=$wide SALLOC_PARTITION=$wide \
      check_left "slurm: a node without power, --requeue" "$nodes"
  else
    fail "slurm: a node without power, --requeue, --max-restarts: $text:" \
      "$(one_line "$folder/job.out")"
  fi
}

slurm_pending_or_gone() {
  slurm_pending "$1" || slurm_gone "$1"
}

slurm_ends() {
  echo "        slurm: $(scontrol show config | grep -E '^KillWait' | tr -s ' ')"
  end_scancel
  end_scancel_plain
  end_scancel_stubborn
  end_signals
  end_requeue
  end_time_limit
  end_power
  end_power_requeue
}

# ------------------------------------------------------------------------ endings of Grid Engine

grid_look_at() {
  local host
  for host in $1; do
    rm -f "$work/look.$host"
    timeout -k 5 90 qsub -sync y -cwd -j y -o "$work/look.$host" -l h="$host" "$work/look.sh" \
      >"$work/submit" 2>&1 </dev/null || echo "no answer of $host: $(one_line "$work/submit")"
    cat "$work/look.$host" 2>/dev/null
  done
}

grid_next_job() {
  printf '#!/bin/bash\nexec "%s" --per-node 1 sleep 2\n' "$launcher" >"$work/next.sh"
  timeout -k 5 120 qsub -sync y -cwd -j y -o "$work/next.out" -pe mpi2 6 "$work/next.sh" \
    </dev/null || { cat "$work/next.out"; return 1; }
}

# grid_job RANKS RANK_MODE OPTIONS...: sets job, folder, nodes, began; the ranks run.
grid_job() {
  local ranks=$1 mode=$2
  shift 2
  folder=$(mktemp -d "$work/end.XXXXXX")
  {
    # shellcheck disable=SC2016
    printf '#!/bin/bash\ncat "${PE_HOSTFILE:-/dev/null}" >"%s/hosts"\n' "$folder"
    printf 'exec "%s" bash "%s" "%s" %s\n' "$launcher" "$work/ranks.sh" "$folder" "$mode"
  } >"$folder/job.sh"
  job=$(qsub -terse -cwd -j y -o "$folder/job.out" "$@" "$folder/job.sh" 2>&1)
  submitted+=("$job")
  if ! wait_for 90 all_wrote "$ranks" up "$folder"; then
    fail "grid engine: $*: no $ranks ranks after 90 s: $job $(one_line "$folder/job.out")"
    qdel "$job" >/dev/null
    return 1
  fi
  nodes=$(cut -d' ' -f1 "$folder/hosts" | sort -u | one_line)
  began=$(sort -n "$folder"/log.* | head -n 1 | cut -d' ' -f1)
}

grid_over() {
  wait_for "$1" grid_gone "$job" || { qdel "$job" >/dev/null; wait_for 60 grid_gone "$job"; }
  took=$(since "$start")
}

# grid_state: what the accounting says of the job; it has entries of the tasks by qrsh before.
grid_state() {
  wait_for 15 qacct -j "$job"
  qacct -j "$job" 2>/dev/null | tr -s ' ' | sed 's/ *$//' |
    awk '$1 == "failed" { failed = $0 } $1 == "exit_status" { print failed ", " $0 }' |
    tail -n 1
}

end_qdel() {
  local job folder nodes start took began
  grid_job 6 "" -pe mpi2 6 || return
  start=$EPOCHREALTIME
  qdel "$job" >/dev/null
  grid_over 60
  ok "grid engine: qdel: $(ranks_with TERM "$folder") of 6 ranks saw SIGTERM, over after $took s," \
    "$(grid_state)"
  check_left "grid engine: qdel" "$nodes"
}

# With -notify ranks learn of it; they save and end by themselves.
end_notify() {
  local job folder nodes start took began text
  grid_job 6 usr2 -notify -pe mpi2 6 || return
  start=$EPOCHREALTIME
  qdel "$job" >/dev/null
  grid_over 90
  text="SIGUSR2 at $(seconds_of USR2 "$folder" "$start") (at most $(most_of USR2 "$folder") each), \
$(ranks_with saved "$folder") of 6 saved, over after $took s, $(grid_state)"
  if all_wrote 6 USR2 "$folder" && all_wrote 6 saved "$folder"; then
    ok "grid engine: -notify, qdel: $text"
  else
    fail "grid engine: -notify, qdel: $text: $(one_line "$folder/job.out")"
  fi
  check_left "grid engine: -notify, qdel" "$nodes"
}

# Ranks that go on are killed when the queue's time of notice is over.
end_notify_stubborn() {
  local job folder nodes start took began text
  grid_job 6 "" -notify -pe mpi2 6 || return
  start=$EPOCHREALTIME
  qdel "$job" >/dev/null
  grid_over 120
  text="SIGUSR2 at $(seconds_of USR2 "$folder" "$start") (at most $(most_of USR2 "$folder") each), \
over after $took s, $(grid_state)"
  if all_wrote 6 USR2 "$folder"; then
    ok "grid engine: -notify, qdel, ranks go on: $text"
  else
    fail "grid engine: -notify, qdel, ranks go on: $text: $(one_line "$folder/job.out")"
  fi
  check_left "grid engine: -notify, qdel, ranks go on" "$nodes"
}

end_h_rt() {
  local job folder nodes start took began
  grid_job 6 "" -pe mpi2 6 -l h_rt=0:0:15 || return
  start=$began
  grid_over 60
  if [ "${took%.*}" -ge 10 ] && [ "${took%.*}" -le 40 ]; then
    ok "grid engine: h_rt=15: over after $took s, $(grid_state)"
  else
    fail "grid engine: h_rt=15: over after $took s, $(grid_state): $(one_line "$folder/job.out")"
  fi
  check_left "grid engine: h_rt=15" "$nodes"
}

# Without a parallel environment the ranks see SIGUSR1. With one, Grid Engine 8.1.9 ends the job at
# s_rt without it: that is only shown.
end_s_rt() {
  local job folder nodes start took began text
  grid_job 1 "" -l s_rt=0:0:10,h_rt=0:0:30 || return
  start=$began
  wait_for 25 all_wrote 1 USR1 "$folder"
  sleep 1
  text="SIGUSR1 at $(seconds_of USR1 "$folder" "$start") (at most $(most_of USR1 "$folder") each)"
  : >"$folder/stop"
  grid_over 60
  text+=", over after $took s, $(grid_state)"
  if all_wrote 1 USR1 "$folder" && all_wrote 1 end "$folder"; then
    ok "grid engine: s_rt=10, one slot: $text"
  else
    fail "grid engine: s_rt=10, one slot: $text: $(one_line "$folder/job.out")"
  fi
  grid_job 6 "" -pe mpi2 6 -l s_rt=0:0:10,h_rt=0:0:30 || return
  start=$began
  grid_over 60
  text="SIGUSR1 at $(seconds_of USR1 "$folder" "$start"), over after $took s, $(grid_state)"
  echo "        grid engine: s_rt=10, six slots: $text"
  check_left "grid engine: s_rt=10" "$nodes"
}

grid_ends() {
  end_qdel
  end_notify
  end_h_rt
  end_s_rt
  end_notify_stubborn
}

# ---------------------------------------------------------------------------------------- checks

parts=("$@")
[ $# -gt 0 ] || parts=(forms digest ends)
for part in "${parts[@]}"; do
  case $part in
    forms | digest | ends) ;;
    *)
      echo "unknown: $part; say forms, digest or ends" >&2
      exit 2
      ;;
  esac
done

found=
if command -v sinfo >/dev/null && sinfo -h >/dev/null 2>&1; then
  found=1
  cancel='scancel'
  for part in "${parts[@]}"; do
    case $part in
      forms) slurm_forms ;;
      digest) check_digest slurm sbatch --wait -o "$work/digest.out" -N2 --ntasks-per-node=2 ;;
      ends) slurm_ends ;;
    esac
  done
fi
if command -v qhost >/dev/null && qhost >/dev/null 2>&1; then
  found=1
  cancel='qdel'
  look_at() { grid_look_at "$@"; }
  next_job() { grid_next_job; }
  for part in "${parts[@]}"; do
    case $part in
      forms) grid_forms ;;
      digest) check_digest "grid engine" qsub -sync y -cwd -j y -o "$work/digest.out" -pe mpi2 4 ;;
      ends) grid_ends ;;
    esac
  done
fi
[ -n "$found" ] || { echo "no scheduler answers here"; exit 77; }
[ $failures = 0 ] && echo "all ok" || echo "$failures failed"
[ $failures = 0 ]
