// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/remote/container_script.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "launcher/job/options.h"
#include "launcher/job/text.h"
#include "launcher/remote/bootstrap.h"

namespace chainmail::launch {
namespace {

constexpr const char* kApptainer = "apptainer";
constexpr const char* kDocker = "docker";
constexpr const char* kPodman = "podman";

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kNameLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";

[[noreturn]] void refuse(const std::string& what) { throw UsageError("container: " + what); }

bool consists_of(std::string_view text, std::string_view letters) {
  return text.find_first_not_of(letters) == std::string_view::npos;
}

bool has_controls(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
}

void check_mount(const std::string& mount) {
  const std::vector<std::string> parts = split(mount, ':');
  const bool is_sound =
      (parts.size() == 2 || parts.size() == 3) && parts[0].starts_with('/') &&
      parts[1].starts_with('/') && !has_controls(mount) &&
      (parts.size() == 2 || consists_of(parts[2], std::string(kNameLetters) + ",="));
  if (!is_sound) refuse("a mount is /FOLDER:/FOLDER or /FOLDER:/FOLDER:ro, not '" + mount + "'");
}

void check_gpus(const std::string& gpus) {
  if (gpus.empty() || gpus == "all") return;
  for (const std::string& number : split(gpus, ',')) {
    if (number.empty() || !consists_of(number, kDigits)) {
      refuse("GPUs are all or numbers such as 0,1, not '" + gpus + "'");
    }
  }
}

void check_shm_size(const std::string& size) {
  const std::size_t digits = std::min(size.find_first_not_of(kDigits), size.size());
  const std::string_view unit = std::string_view(size).substr(digits);
  const bool is_sound = digits > 0 && unit.size() <= 1 && consists_of(unit, "bkmgBKMG");
  if (!size.empty() && !is_sound) {
    refuse("the size of shared memory is a number with b, k, m or g, not '" + size + "'");
  }
}

// Words for the script, each quoted.
class Words {
 public:
  Words& add(const std::string& word) {
    text_ += " " + shell_quoted(word);
    return *this;
  }
  /// Words that the shell on the host expands.
  Words& add_raw(const std::string& words) {
    text_ += " " + words;
    return *this;
  }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

void add_gpus(const Container& container, Words& words) {
  if (container.gpus.empty()) return;
  if (container.engine == kApptainer) {
    words.add("--nv");
    if (container.gpus != "all") words.add("--env").add("CUDA_VISIBLE_DEVICES=" + container.gpus);
  } else if (container.engine == kDocker) {
    // Its value is a line of CSV.
    words.add("--gpus").add(container.gpus == "all" ? "all" : "\"device=" + container.gpus + "\"");
  } else {
    for (const std::string& number : split(container.gpus, ',')) {
      words.add("--device").add("nvidia.com/gpu=" + number);
    }
  }
}

Words engine_words(const ContainerStart& start) {
  const Container& container = start.what;
  const bool is_apptainer = container.engine == kApptainer;
  Words words;
  if (is_apptainer) {
    words.add("exec");
  } else {
    words.add("run").add("--rm").add("-i").add("--init");
    words.add("--name").add(start.name).add("--label").add(start.label);
    words.add("--network").add("host").add("--user").add_raw("\"$cm_user\"");
    // Without it this user would be another one outside. Root has no need for it, and podman says
    // so.
    if (container.engine == kPodman) words.add_raw("$cm_keep");
    words.add_raw("${cm_shm:+--shm-size \"$cm_shm\"}");
  }
  add_gpus(container, words);
  for (const std::string& mount : container.mounts) {
    words.add(is_apptainer ? "--bind" : "-v").add(mount);
  }
  words.add(container.image).add("/bin/sh");
  return words;
}

// Docker would make a folder, root's, in place of one that is missing. The shell stays: it gets the
// signal when the launcher is killed, and not the client, which would leave a container that it was
// about to start; and removes what a client leaves that ends in another way.
constexpr char kContainerScript[] = R"sh(
cm_say() { echo "chainmail: $*" >&2; }
if ! command -v "$cm_engine" >/dev/null 2>&1; then
  cm_say "container: $cm_engine is not installed, or in no folder of PATH ($PATH)"
  exit 125
fi
for cm_at do
  [ -e "$cm_at" ] && continue
  cm_say "container: there is no $cm_at, which is to be mounted"
  exit 125
done
if [ -z "$cm_shm" ]; then
  set -- $(df -kP /dev/shm 2>/dev/null | tail -n 1)
  cm_shm=${2:+${2}k}
fi
cm_user=$(id -u):$(id -g)
cm_keep=--userns=keep-id
[ "$(id -u)" != 0 ] || cm_keep=
trap : 1 15
printf '<shell-for-%s>\n' "$cm_marker"
)sh";

// Behind the engine's client.
constexpr char kAfterwards[] = R"sh(
cm_code=$?
[ $cm_code = 0 ] || [ -z "$cm_name" ] || "$cm_engine" rm -f "$cm_name" </dev/null >/dev/null 2>&1
exit $cm_code
)sh";

}  // namespace

void check_container(const Container& container) {
  const std::string& engine = container.engine;
  if (engine != kPodman && engine != kDocker && engine != kApptainer) {
    refuse("the engine is podman, docker or apptainer, not '" + engine + "'");
  }
  if (container.image.empty() || container.image.front() == '-' || has_controls(container.image)) {
    refuse("'" + container.image + "' is no name of an image");
  }
  for (const std::string& mount : container.mounts) check_mount(mount);
  check_gpus(container.gpus);
  check_shm_size(container.shm_size);
  const bool is_name = consists_of(container.name_prefix, kNameLetters) &&
                       !container.name_prefix.starts_with('-') &&
                       !container.name_prefix.starts_with('.');
  const bool is_label = consists_of(container.label, std::string(kNameLetters) + "=/") &&
                        !container.label.starts_with('-');
  if (!is_name || !is_label) {
    refuse("names and labels consist of letters, digits, '_', '.' and '-', not '" +
           (is_name ? container.label : container.name_prefix) + "'");
  }
}

std::string container_script(const ContainerStart& start, const std::string& marker) {
  Words sources;
  for (const std::string& mount : start.what.mounts) sources.add(mount.substr(0, mount.find(':')));
  const std::string name = keeps_containers(start.what) ? start.name : "";
  return "{\ncm_marker=" + shell_quoted(marker) + "\ncm_engine=" + shell_quoted(start.what.engine) +
         "\ncm_name=" + shell_quoted(name) + "\ncm_shm=" + shell_quoted(start.what.shm_size) +
         "\nset --" + sources.text() + kContainerScript + "\"$cm_engine\"" +
         engine_words(start).text() + kAfterwards + "}\n";
}

std::string shell_request(const std::string& marker) { return "<shell-for-" + marker + ">\n"; }

// Podman gives a container ten seconds to end, unless it is killed before.
std::string removal_script(const Container& container, const std::string& label) {
  const std::string engine = shell_quoted(container.engine);
  return "{\ncommand -v " + engine + " >/dev/null 2>&1 || exit 127\nset -- $(" + engine +
         " ps -aq --filter " + shell_quoted("label=" + label) + ")\n[ $# = 0 ] || {\n" + engine +
         " kill \"$@\"\n" + engine + " rm -f \"$@\"\n} >/dev/null 2>&1\necho $#\n}\n";
}

bool keeps_containers(const Container& container) {
  return container.is_on() && container.engine != kApptainer;
}

}  // namespace chainmail::launch
