// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/forms/batch_ai_reader.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "launcher/hosts/host_text.h"
#include "launcher/jobs/file/forms/batch_ai_program.h"
#include "launcher/jobs/file/forms/modern_parts.h"
#include "launcher/jobs/file/text/durations.h"

namespace chainmail::launch {
namespace {

using NodeKind = JsonNode::Kind;

constexpr const char* kDefaultWallClock = "604800";  // 7 days, as the service had it

struct IdleKey {
  const char* key;
  const char* reason;
};
constexpr std::array<IdleKey, 4> kIdleKeys = {
    {{"cluster", "has no effect here: hosts come from -H, a hostfile or the scheduler"},
     {"schedulingPriority", "has no effect here: there is no queue"},
     {"priority", "has no effect here: there is no queue"},
     {"experimentName", "has no effect here"}}};
constexpr std::array<const char*, 4> kVolumes = {"azureFileShares", "azureBlobFileSystems",
                                                 "fileServers", "unmanagedFileSystems"};
// Of volumes; what they say is never looked at.
constexpr std::array<const char*, 8> kVolumeKeys = {
    "accountName",   "azureFileUrl", "containerName", "fileMode",
    "directoryMode", "mountOptions", "fileServer",    "sourceDirectory"};

JsonNode object_at(const JsonNode& place) { return node_at(place, NodeKind::kObject); }

void put_member(JsonNode& object, const std::string& key, JsonNode value) {
  const TextPlace place = value.place;
  object.members.push_back({key, place, std::move(value)});
}

// A dollar that no name follows means itself in these files.
std::string lenient_pattern(const std::string& text) {
  std::string pattern;
  for (std::size_t at = 0; at < text.size(); ++at) {
    pattern += text[at];
    if (text[at] != '$') continue;
    const std::string rest = text.substr(at + 1);
    const std::size_t begin = rest.starts_with('{') ? 1 : 0;
    const auto is_in_name = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    std::size_t end = begin;
    while (end < rest.size() && is_in_name(rest[end])) ++end;
    const bool has_name = end > begin && !(rest[begin] >= '0' && rest[begin] <= '9');
    const bool is_closed = begin == 0 || (end < rest.size() && rest[end] == '}');
    if (!has_name || !is_closed) pattern += '$';
  }
  return pattern;
}

class BatchAiReader {
 public:
  BatchAiReader(const JobReading& reading, const JsonNode& root)
      : reading_(reading), mistakes_(reading.mistakes), root_(root), out_(object_at(root)) {
    put_member(out_, "chainmail", node_at(root, NodeKind::kNumber, "1"));
  }

  JsonNode read() {
    const JsonNode* properties = root_.find("properties");
    read_schema();
    if (properties == nullptr) {
      ObjectReader reader(root_, mistakes_, /*nulls_are_absent=*/true);
      read_resource(reader);
      read_properties(reader, root_);
      return std::move(out_);
    }
    ObjectReader resource(root_, mistakes_, /*nulls_are_absent=*/true);
    (void)resource.find("properties");
    read_resource(resource);
    resource.warn_of_unknown();
    ObjectReader reader(*properties, mistakes_, /*nulls_are_absent=*/true);
    read_properties(reader, *properties);
    return std::move(out_);
  }

 private:
  void read_schema() {
    const JsonNode* schema = root_.find("$schema");
    if (schema == nullptr || schema->kind != NodeKind::kText) return;
    for (const char* other : {"cluster.json", "nfs.json"}) {
      if (schema->text.ends_with(other)) {
        mistakes_.add(*schema,
                      "this describes machines and not a job; hosts are named by -H or a "
                      "hostfile here");
      }
    }
  }

  // What a template of Azure's resource manager has around a job.
  void read_resource(ObjectReader& reader) {
    for (const char* key : {"$schema", "type", "apiVersion", "location", "tags", "id"}) {
      (void)reader.find(key);
    }
    if (const JsonNode* name = reader.find("name")) put_member(out_, "name", *name);
  }

  void read_properties(ObjectReader& reader, const JsonNode& node) {
    std::uint32_t nodes = 1;
    (void)reader.require("nodeCount");
    reader.number("nodeCount", 1, kMostRanks, nodes);
    put_program(reader, node, nodes);
    put_hosts(node, nodes);
    if (const JsonNode* prefix = reader.require("stdOutErrPathPrefix")) {
      JsonNode logs = object_at(*prefix);
      put_member(logs, "path", *prefix);
      put_member(out_, "logs", std::move(logs));
    }
    put_folders(reader);
    put_environment(reader);
    put_secrets(reader);
    put_preparation(reader);
    put_mounts(reader);
    put_container(reader);
    put_limits(reader, node);
    for (const IdleKey& idle : kIdleKeys) {
      const JsonNode* found = reader.find(idle.key);
      if (found != nullptr) mistakes_.warn(*found, idle.reason);
    }
    (void)reader.find("location");
    reader.warn_of_unknown();
  }

  void put_program(ObjectReader& reader, const JsonNode& node, std::uint32_t nodes) {
    BatchAiProgram program = batch_ai_program(reading_, reader, node, nodes);
    // The mistake has been told; a word in its place keeps the modern form's reader from another.
    if (program.words.empty()) program.words.push_back(node_at(node, NodeKind::kText, "none"));
    JsonNode words = node_at(program.words.front(), NodeKind::kList);
    words.items = std::move(program.words);
    put_member(out_, "program", std::move(words));
    const auto number = [&](std::uint32_t value) {
      return node_at(program.ranks_at, NodeKind::kNumber, std::to_string(value));
    };
    put_member(out_, "ranks", number(program.ranks));
    put_member(out_, "per_node", number((program.ranks + nodes - 1) / nodes));
  }

  void put_hosts(const JsonNode& node, std::uint32_t nodes) {
    const JsonNode* found = node.find("nodeCount");
    const JsonNode& at = found == nullptr ? node : *found;
    JsonNode hosts = object_at(at);
    put_member(hosts, "count", node_at(at, NodeKind::kNumber, std::to_string(nodes)));
    put_member(out_, "hosts", std::move(hosts));
  }

  // Calls `use` for each object of a list.
  void each_item(ObjectReader& reader, const char* key,
                 const std::function<void(ObjectReader& item, const JsonNode& node)>& use) {
    const JsonNode* list = reader.find(key);
    if (list == nullptr || !check_kind(*list, NodeKind::kList, mistakes_)) return;
    for (const JsonNode& node : list->items) {
      ObjectReader item(node, mistakes_, /*nulls_are_absent=*/true);
      if (node.kind == NodeKind::kObject) use(item, node);
      item.warn_of_unknown();
    }
  }

  // What a list calls `key` becomes a member's name, which may be there once.
  bool put_once(JsonNode& object, const JsonNode* key, JsonNode value) {
    const auto name = key == nullptr ? std::nullopt : text_in(*key, mistakes_);
    if (!name) return false;
    for (const JsonMember& member : object.members) {
      if (member.key != *name) continue;
      mistakes_.add(*key, in_quotes(*name) + " stands at " + std::to_string(member.place.line) +
                              ":" + std::to_string(member.place.column) + " already");
      return false;
    }
    object.members.push_back({*name, key->place, std::move(value)});
    return true;
  }

  void put_folders(ObjectReader& reader) {
    JsonNode inputs = object_at(root_);
    each_item(reader, "inputDirectories", [&](ObjectReader& item, const JsonNode&) {
      const JsonNode* id = item.require("id");
      const JsonNode* path = item.require("path");
      if (path != nullptr) (void)put_once(inputs, id, *path);
    });
    JsonNode outputs = object_at(root_);
    each_item(reader, "outputDirectories", [&](ObjectReader& item, const JsonNode& node) {
      const JsonNode* id = item.require("id");
      const JsonNode* prefix = item.require("pathPrefix");
      const JsonNode* suffix = item.find("pathSuffix");
      for (const char* key : {"type", "createNew"}) {
        const JsonNode* idle = item.find(key);
        if (idle != nullptr) mistakes_.warn(*idle, "has no effect here: each job has a new folder");
      }
      JsonNode output = object_at(id == nullptr ? node : *id);
      if (prefix != nullptr) put_member(output, "path", *prefix);
      if (suffix != nullptr) put_member(output, "suffix", *suffix);
      if (prefix != nullptr) (void)put_once(outputs, id, std::move(output));
    });
    put_member(out_, "inputs", std::move(inputs));
    put_member(out_, "outputs", std::move(outputs));
  }

  void put_environment(ObjectReader& reader) {
    JsonNode environment = object_at(root_);
    each_item(reader, "environmentVariables", [&](ObjectReader& item, const JsonNode&) {
      const JsonNode* name = item.require("name");
      const JsonNode* value = item.require("value");
      const auto text = value == nullptr ? std::nullopt : text_in(*value, mistakes_);
      if (!text) return;
      (void)put_once(environment, name, node_at(*value, NodeKind::kText, lenient_pattern(*text)));
    });
    put_member(out_, "environment", std::move(environment));
  }

  [[nodiscard]] bool is_given(const std::string& name) const {
    const auto& secrets = reading_.settings.secrets;
    return std::any_of(secrets.begin(), secrets.end(), [&](const std::string& secret) {
      return secret.substr(0, secret.find('=')) == name;
    });
  }

  void put_secrets(ObjectReader& reader) {
    JsonNode secrets = object_at(root_);
    each_item(reader, "secrets", [&](ObjectReader& item, const JsonNode& node) {
      const JsonNode* name = item.require("name");
      const JsonNode* value = item.find("value");
      const JsonNode* reference = item.find("valueSecretReference");
      if ((value == nullptr) == (reference == nullptr)) {
        mistakes_.add(node, "must have one of 'value' and 'valueSecretReference'");
        return;
      }
      if (value != nullptr && check_kind(*value, NodeKind::kText, mistakes_)) {
        (void)put_once(secrets, name, *value);
      }
      if (reference == nullptr) return;
      if (name != nullptr && reading_.settings.is_complete && !is_given(name->text)) {
        mistakes_.add(*reference, "key vaults are not asked here; give the value by --secret " +
                                      printable(name->text) + "=@FILE, or by --secret " +
                                      printable(name->text) + " from the launcher's environment");
        return;
      }
      (void)put_once(secrets, name, node_at(*reference, NodeKind::kNull));
    });
    put_member(out_, "secrets", std::move(secrets));
  }

  void put_preparation(ObjectReader& reader) {
    const JsonNode* node = reader.find("jobPreparation");
    if (node == nullptr) return;
    ObjectReader preparation(*node, mistakes_, /*nulls_are_absent=*/true);
    const JsonNode* line = preparation.require("commandLine");
    preparation.warn_of_unknown();
    if (line == nullptr) return;
    JsonNode prepare = object_at(*node);
    put_member(prepare, "command", *line);
    put_member(out_, "prepare", std::move(prepare));
  }

  void put_mounts(ObjectReader& reader) {
    const JsonNode* node = reader.find("mountVolumes");
    if (node == nullptr) return;
    JsonNode mounts = object_at(*node);
    ObjectReader volumes(*node, mistakes_, /*nulls_are_absent=*/true);
    for (const char* kind : kVolumes) {
      each_item(volumes, kind, [&](ObjectReader& item, const JsonNode&) {
        const JsonNode* path = item.require("relativeMountPath");
        for (const char* key : kVolumeKeys) (void)item.find(key);
        for (const char* key : {"mountCommand", "credentials"}) {
          const JsonNode* unused = item.find(key);
          if (unused == nullptr) continue;
          mistakes_.warn(*unused,
                         "is never used: nothing is mounted here, folders that are there "
                         "are named by --mount");
        }
        auto name = path == nullptr ? std::nullopt : text_in(*path, mistakes_);
        if (!name) return;
        while (name->ends_with('/')) name->pop_back();
        name->erase(0, std::min(name->find_first_not_of('/'), name->size()));
        const JsonNode key = node_at(*path, NodeKind::kText, *name);
        (void)put_once(mounts, &key, node_at(*path, NodeKind::kNull));
      });
    }
    volumes.warn_of_unknown();
    put_member(out_, "mounts", std::move(mounts));
  }

  void put_container(ObjectReader& reader) {
    const JsonNode* node = reader.find("containerSettings");
    if (node == nullptr) return;
    ObjectReader settings(*node, mistakes_, /*nulls_are_absent=*/true);
    const JsonNode* registry = settings.require("imageSourceRegistry");
    const JsonNode* shm_size = settings.find("shmSize");
    settings.warn_of_unknown();
    if (registry == nullptr) return;
    ObjectReader source(*registry, mistakes_, /*nulls_are_absent=*/true);
    const JsonNode* image = source.require("image");
    std::string server;
    source.text("serverUrl", server);
    if (const JsonNode* credentials = source.find("credentials")) {
      mistakes_.add(*credentials,
                    "are not used here: log in once on the hosts, by podman login or "
                    "docker login, and take them out of the file");
    }
    source.warn_of_unknown();
    const auto name = image == nullptr ? std::nullopt : text_in(*image, mistakes_);
    if (!name) return;
    JsonNode container = object_at(*node);
    put_member(container, "engine", node_at(*node, NodeKind::kText, "docker"));
    put_member(container, "image", node_at(*image, NodeKind::kText, with_server(server, *name)));
    if (shm_size != nullptr) put_member(container, "shm_size", *shm_size);
    put_member(out_, "container", std::move(container));
    const bool has_gpus =
        std::any_of(reading_.settings.sets.begin(), reading_.settings.sets.end(),
                    [](const std::string& set) { return set.starts_with("container.gpus="); });
    if (has_gpus) return;
    mistakes_.warn(*node, "the container has no GPUs: --set container.gpus=all gives it all");
  }

  // "https://SERVER/" in front of the image's name.
  static std::string with_server(std::string server, const std::string& image) {
    const std::size_t scheme = server.find("://");
    if (scheme != std::string::npos) server.erase(0, scheme + 3);
    while (server.ends_with('/')) server.pop_back();
    const bool has_it = server.empty() || image.starts_with(server + "/");
    return has_it ? image : server + "/" + image;
  }

  void put_limits(ObjectReader& reader, const JsonNode& node) {
    JsonNode time = node_at(node, NodeKind::kNumber, kDefaultWallClock);
    if (const JsonNode* constraints = reader.find("constraints")) {
      ObjectReader limits(*constraints, mistakes_, /*nulls_are_absent=*/true);
      if (const JsonNode* limit = limits.find("maxWallClockTime")) read_wall_clock(*limit, time);
      limits.warn_of_unknown();
    }
    JsonNode limits = object_at(time);
    put_member(limits, "time", std::move(time));
    put_member(out_, "limits", std::move(limits));
  }

  void read_wall_clock(const JsonNode& node, JsonNode& time) {
    const auto text = text_in(node, mistakes_);
    if (!text) return;
    const auto duration = batch_ai_duration_in(*text);
    if (!duration || duration->count() == 0) {
      mistakes_.add(node,
                    "must be a time such as \"PT12H\", \"P7D\", \"7.00:00:00\" or \"7 days, "
                    "0:00:00\", and a year at most; years and months have no fixed length");
      return;
    }
    time = node_at(node, NodeKind::kText, duration_text(*duration));
  }

  const JobReading& reading_;
  Mistakes& mistakes_;
  const JsonNode& root_;
  JsonNode out_;
};

}  // namespace

JsonNode modern_form_of(const JobReading& reading, const JsonNode& root) {
  return BatchAiReader(reading, root).read();
}

bool is_batch_ai_form(const JsonNode& root) {
  if (root.find("properties") != nullptr || root.find("nodeCount") != nullptr) return true;
  const JsonNode* schema = root.find("$schema");
  if (schema != nullptr && schema->text.find("BatchAI") != std::string::npos) return true;
  const std::vector<std::string> keys = batch_ai_settings_keys();
  return std::any_of(keys.begin(), keys.end(),
                     [&](const std::string& key) { return root.find(key) != nullptr; });
}

}  // namespace chainmail::launch
