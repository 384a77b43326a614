// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/forms/batch_ai_program.h"

#include <algorithm>
#include <array>

#include "launcher/job/expansion.h"
#include "launcher/job/text.h"
#include "launcher/jobs/file/forms/modern_parts.h"
#include "launcher/jobs/file/text/shell_words.h"

namespace chainmail::launch {
namespace {

using NodeKind = JsonNode::Kind;

enum class Toolkit {
  kScript,      // pythonScriptFilePath and commandLineArgs
  kProgram,     // programFilePath and commandLineArgs: ours
  kCntk,        // kScript, or a language of its own
  kTensorFlow,  // kScript with other names, or parameter servers
  kMpi,         // commandLine on every rank
  kCustom,      // commandLine on the first host
  kCaffe,
};

struct ToolkitKey {
  const char* key;
  Toolkit toolkit;
};
constexpr std::array<ToolkitKey, 10> kToolkits = {{{"chainerSettings", Toolkit::kScript},
                                                   {"horovodSettings", Toolkit::kScript},
                                                   {"pyTorchSettings", Toolkit::kScript},
                                                   {"caffe2Settings", Toolkit::kScript},
                                                   {"chainmailSettings", Toolkit::kProgram},
                                                   {"cntkSettings", Toolkit::kCntk},
                                                   {"tensorFlowSettings", Toolkit::kTensorFlow},
                                                   {"customMpiSettings", Toolkit::kMpi},
                                                   {"customToolkitSettings", Toolkit::kCustom},
                                                   {"caffeSettings", Toolkit::kCaffe}}};

bool equals_in_any_case(const std::string& a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : int{c}; };
    return lower(x) == lower(y);
  });
}

class ToolkitReader {
 public:
  ToolkitReader(const JobReading& reading, const JsonNode& node, std::uint32_t node_count)
      : reading_(reading),
        mistakes_(reading.mistakes),
        node_(node),
        reader_(node, reading.mistakes, /*nulls_are_absent=*/true) {
    program_.ranks = node_count;
    program_.ranks_at = node_at(node, NodeKind::kNull);
  }

  BatchAiProgram read(Toolkit toolkit) {
    switch (toolkit) {
      case Toolkit::kScript:
        read_script("pythonScriptFilePath", "commandLineArgs");
        break;
      case Toolkit::kProgram:
        read_script("programFilePath", "commandLineArgs");
        break;
      case Toolkit::kCntk:
        read_cntk();
        break;
      case Toolkit::kTensorFlow:
        read_tensor_flow();
        break;
      case Toolkit::kMpi:
        read_line();
        read_count("processCount");
        break;
      case Toolkit::kCustom:
        read_line();
        program_.ranks = 1;
        break;
      case Toolkit::kCaffe:
        mistakes_.add(node_,
                      "Caffe's own launcher is not replaced here; run caffe by "
                      "customMpiSettings or customToolkitSettings");
        return std::move(program_);
    }
    reader_.warn_of_unknown();
    return std::move(program_);
  }

 private:
  void read_count(const std::string& key) {
    const JsonNode* node = reader_.find(key);
    if (node == nullptr) return;
    program_.ranks_at = node_at(*node, NodeKind::kNull);
    const auto count = whole_number_in(*node, 1, kMostRanks, mistakes_);
    if (count) program_.ranks = static_cast<std::uint32_t>(*count);
  }

  void add_word(const JsonNode& at, const std::string& pattern) {
    program_.words.push_back(node_at(at, NodeKind::kText, pattern));
  }

  // A file that the settings name; beside the job file unless it says where.
  void add_file(const JsonNode& node, const std::string& path) {
    add_word(node, path_pattern_in(reading_, node, path));
  }

  void read_script(const std::string& path_key, const std::string& arguments_key) {
    const JsonNode* node = reader_.require(path_key);
    const JsonNode* interpreter = reader_.find("pythonInterpreterPath");
    const auto path = node == nullptr ? std::nullopt : text_in(*node, mistakes_);
    if (path && path->ends_with(".py")) {
      add_interpreter(*node, interpreter);
    } else if (path && interpreter != nullptr) {
      mistakes_.warn(*interpreter, "is not used: only files that end in .py run under Python");
    }
    if (path) add_file(*node, *path);
    if (const JsonNode* arguments = reader_.find(arguments_key)) add_arguments(*arguments);
    read_count("processCount");
    if (const JsonNode* backend = reader_.find("communicationBackend")) {
      mistakes_.warn(*backend, "has no effect here: the program chooses its communicator");
    }
  }

  void add_interpreter(const JsonNode& script, const JsonNode* node) {
    const auto path = node == nullptr ? std::nullopt : text_in(*node, mistakes_);
    if (!path) return add_word(node == nullptr ? script : *node, "python3");
    const bool has_folder = path->find('/') != std::string::npos;
    return has_folder ? add_file(*node, *path) : add_word(*node, *path);
  }

  void add_arguments(const JsonNode& node) {
    const auto line = text_in(node, mistakes_);
    if (!line) return;
    const ShellWords words = split_shell_words(*line);
    if (!words.problem.empty()) {
      mistakes_.add(node,
                    words.problem + " (character " + std::to_string(words.at + 1) + " of it)");
    }
    for (const std::string& pattern : words.patterns) add_word(node, pattern);
  }

  // The shell expands variables from the environment, so that patterns have nothing to do there.
  void read_line() {
    const JsonNode* node = reader_.require("commandLine");
    const auto line = node == nullptr ? std::nullopt : text_in(*node, mistakes_);
    if (!line) return;
    if (line->find_first_not_of(" \t\r\n") == std::string::npos) mistakes_.add(*node, "is empty");
    add_word(*node, "/bin/sh");
    add_word(*node, "-c");
    add_word(*node, as_pattern(*line));
  }

  void read_cntk() {
    const JsonNode* language = reader_.find("languageType");
    const JsonNode* config = reader_.find("configFilePath");
    const auto name = language == nullptr ? std::nullopt : text_in(*language, mistakes_);
    if (config != nullptr || (name && equals_in_any_case(*name, "BrainScript"))) {
      mistakes_.add(config != nullptr ? *config : *language,
                    "BrainScript is not run here: start cntk itself by customMpiSettings, or use "
                    "a program in Python by pythonScriptFilePath");
      return;
    }
    if (name && !equals_in_any_case(*name, "Python")) mistakes_.add(*language, "must be Python");
    read_script("pythonScriptFilePath", "commandLineArgs");
  }

  void read_tensor_flow() {
    const JsonNode* servers = reader_.find("parameterServerCount");
    const JsonNode* server_arguments = reader_.find("parameterServerCommandLineArgs");
    const bool has_servers = servers != nullptr && servers->text != "0";
    if (has_servers || server_arguments != nullptr) {
      mistakes_.add(has_servers ? *servers : *server_arguments,
                    "there are no parameter servers here: let the workers average their gradients, "
                    "by horovodSettings or chainmailSettings");
    }
    const JsonNode* first = reader_.find("masterCommandLineArgs");
    const JsonNode* others = reader_.find("workerCommandLineArgs");
    if (first != nullptr && others != nullptr && first->text != others->text) {
      mistakes_.add(*others,
                    "all ranks have the same arguments here, and these differ from "
                    "masterCommandLineArgs; let the program look at $RANK");
    }
    read_count("workerCount");
    const bool has_own_names = first != nullptr || others != nullptr;
    read_script("pythonScriptFilePath",
                !has_own_names
                    ? "commandLineArgs"
                    : (first != nullptr ? "masterCommandLineArgs" : "workerCommandLineArgs"));
  }

  const JobReading& reading_;
  Mistakes& mistakes_;
  const JsonNode& node_;
  ObjectReader reader_;
  BatchAiProgram program_;
};

}  // namespace

std::vector<std::string> batch_ai_settings_keys() {
  std::vector<std::string> keys;
  for (const ToolkitKey& toolkit : kToolkits) keys.emplace_back(toolkit.key);
  return keys;
}

BatchAiProgram batch_ai_program(const JobReading& reading, ObjectReader& properties,
                                const JsonNode& node, std::uint32_t node_count) {
  const ToolkitKey* chosen = nullptr;
  const JsonNode* settings = nullptr;
  for (const ToolkitKey& toolkit : kToolkits) {
    const JsonNode* found = properties.find(toolkit.key);
    if (found == nullptr) continue;
    if (chosen != nullptr) {
      reading.mistakes.add(
          *found, std::string("a job has one program, and there is '") + chosen->key + "' already");
      continue;
    }
    chosen = &toolkit;
    settings = found;
  }
  if (chosen != nullptr) return ToolkitReader(reading, *settings, node_count).read(chosen->toolkit);
  if (node.kind == NodeKind::kObject) {
    reading.mistakes.add(
        node, "no program: one of these is missing: " + joined(batch_ai_settings_keys(), ", "));
  }
  return {};
}

}  // namespace chainmail::launch
