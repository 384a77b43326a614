// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/base/membership/trace/trace_checker.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/membership/member/member_machine.h"
#include "base/membership/trace.h"
#include "base/membership/world/world_machine.h"

namespace chainmail::membership {
namespace {

// Enough to see what is wrong with a file.
constexpr std::size_t kMostProblems = 20;

// Channels lose what was under way when they end, and nothing before.
bool is_prefix(const std::vector<std::string>& part, const std::vector<std::string>& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

// An archive for `fields` that takes them from a JSON object. Throws nlohmann::json::exception or
// std::runtime_error where one is missing or of another kind.
class JsonReader {
 public:
  template <typename T>
  [[nodiscard]] static T read(const nlohmann::json& json) {
    T value{};
    take(json, value);
    return value;
  }

  void operator()(const char* name, auto& value) { take(json_->at(name), value); }

 private:
  explicit JsonReader(const nlohmann::json& json) : json_(&json) {}

  template <typename T>
  static void take(const nlohmann::json& json, T& value) {
    if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(json.get<std::int64_t>());
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      json.get_to(value);
    } else {
      JsonReader reader(json);
      T::fields(reader, value);
    }
  }
  static void take(const nlohmann::json& json, std::chrono::milliseconds& value) {
    value = std::chrono::milliseconds(json.get<std::int64_t>());
  }
  template <typename T>
  static void take(const nlohmann::json& json, std::optional<T>& value) {
    if (!json.is_null()) take(json, value.emplace());
  }
  template <typename T>
  static void take(const nlohmann::json& json, std::shared_ptr<const T>& value) {
    value = std::make_shared<const T>(read<T>(json));
  }
  template <typename T>
  static void take(const nlohmann::json& json, std::vector<T>& values) {
    for (const auto& element : json) take(element, values.emplace_back());
  }
  template <typename... T>
  static void take(const nlohmann::json& json, std::variant<T...>& value) {
    const std::string kind = json.at("kind").get<std::string>();
    const bool is_known = (take_if<T>(json, kind, value) || ...);
    if (!is_known) throw std::runtime_error("the kind '" + kind + "' is not known");
  }
  template <typename T>
  static bool take_if(const nlohmann::json& json, const std::string& kind, auto& value) {
    if (kind != T::kName) return false;
    take(json, value.template emplace<T>());
    return true;
  }

  const nlohmann::json* json_;
};

}  // namespace

class TraceChecker::State {
 public:
  void add(std::string_view text, const std::string& place);
  const std::vector<std::string>& finish();
  const std::vector<std::string>& problems() const { return problems_; }
  std::uint64_t lines() const { return lines_; }
  std::size_t members() const { return members_.size(); }
  StepNumber steps() const { return steps_.empty() ? 0 : steps_.rbegin()->first; }

 private:
  using Json = nlohmann::json;

  struct Member {
    std::unique_ptr<MemberMachine> machine;
    std::vector<std::string> told;  // what it was told by its own file
    std::vector<std::string> sent;
  };
  // What the launcher's file says about a member.
  struct Peer {
    std::vector<std::string> told;
    std::vector<std::string> said;
  };
  struct Committed {
    std::string state;
    std::uint64_t position = 0;
    std::string place;
  };

  void add_world(const Json& line, const std::string& place);
  void add_member(const Json& line, const std::string& place);
  void note_actions(const Json& line, MemberId id, const MemberActions& actions,
                    const std::string& place);
  void compare(const Json& recorded, const std::string& ours, const std::string& place);
  void problem(const std::string& place, const std::string& what);

  std::unique_ptr<WorldMachine> world_;
  std::map<MemberId, Member> members_;
  std::map<MemberId, Peer> peers_;
  std::map<StepNumber, Committed> steps_;
  std::map<Generation, std::string> worlds_;
  std::optional<std::uint64_t> next_sequence_;
  std::uint64_t lines_ = 0;
  std::vector<std::string> problems_;
};

void TraceChecker::State::add(std::string_view text, const std::string& place) {
  try {
    const Json line = Json::parse(text);
    if (!line.is_object() || !line.contains("machine")) return;
    ++lines_;
    const auto machine = line.at("machine").get<std::string>();
    if (machine == "world") {
      add_world(line, place);
    } else if (machine == "member") {
      add_member(line, place);
    } else {
      problem(place, "no machine is called '" + machine + "'");
    }
  } catch (const std::exception& error) {
    problem(place, std::string("cannot be read: ") + error.what());
  }
}

void TraceChecker::State::add_world(const Json& line, const std::string& place) {
  if (line.contains("options")) {
    world_ = std::make_unique<WorldMachine>(JsonReader::read<WorldOptions>(line.at("options")),
                                            JsonReader::read<ResumePoint>(line.at("resume")));
    return;
  }
  if (world_ == nullptr) return problem(place, "the launcher has done something before its birth");
  const auto event = JsonReader::read<WorldEvent>(line.at("in"));
  WorldActions actions;
  world_->on(event, actions);
  compare(line.at("out"), JsonObject::text_of(actions), place);
  if (const auto* const said = std::get_if<MemberSaid>(&event)) {
    peers_[said->from].said.push_back(JsonObject::text_of(said->message));
  }
  for (const WorldAction& action : actions) {
    if (const auto* const tell = std::get_if<Tell>(&action)) {
      peers_[tell->to].told.push_back(JsonObject::text_of(tell->message));
    } else if (const auto* const record = std::get_if<LogRecord>(&action)) {
      if (record->sequence != next_sequence_.value_or(record->sequence)) {
        problem(place, "the log has a gap");
      }
      next_sequence_ = record->sequence + 1;
    }
  }
}

void TraceChecker::State::add_member(const Json& line, const std::string& place) {
  const auto id = line.at("id").get<MemberId>();
  Member& member = members_[id];
  if (line.contains("options")) {
    if (member.machine != nullptr) return problem(place, "this member has been born before");
    const auto options = JsonReader::read<MemberOptions>(line.at("options"));
    member.machine = std::make_unique<MemberMachine>(id, options);
    return;
  }
  if (member.machine == nullptr) {
    return problem(place, "a member has done something before its birth");
  }
  const auto event = JsonReader::read<MemberEvent>(line.at("in"));
  MemberActions actions;
  member.machine->on(event, actions);
  compare(line.at("out"), JsonObject::text_of(actions), place);
  if (const auto* const told = std::get_if<Told>(&event)) {
    member.told.push_back(JsonObject::text_of(told->message));
  }
  note_actions(line, id, actions, place);
}

void TraceChecker::State::note_actions(const Json& line, MemberId id, const MemberActions& actions,
                                       const std::string& place) {
  for (const MemberAction& action : actions) {
    if (const auto* const send = std::get_if<Send>(&action)) {
      members_[id].sent.push_back(JsonObject::text_of(send->message));
    } else if (const auto* const connect = std::get_if<Connect>(&action)) {
      std::string& known = worlds_[connect->world->generation];
      const std::string world = JsonObject::text_of(*connect->world);
      if (known.empty()) known = world;
      if (known != world) problem(place, "another member knows another world of this generation");
    } else if (const auto* const commit = std::get_if<Commit>(&action)) {
      const auto state = line.at("state").get<std::string>();
      const auto [step, is_new] =
          steps_.try_emplace(commit->step, Committed{state, commit->position, place});
      if (!is_new && (step->second.state != state || step->second.position != commit->position)) {
        problem(place, "step " + std::to_string(commit->step) + " is another one in " +
                           step->second.place);
      }
    }
  }
}

const std::vector<std::string>& TraceChecker::State::finish() {
  for (auto& [id, member] : members_) {
    const std::string name = "member " + std::to_string(id);
    const Peer& peer = peers_[id];
    if (!is_prefix(member.told, peer.told)) {
      problem(name, "was told what the launcher did not tell it, or in another order");
    }
    if (!is_prefix(peer.said, member.sent)) {
      problem(name, "said to the launcher what it did not send, or in another order");
    }
  }
  for (const auto& [id, peer] : peers_) {
    if (!members_.contains(id) && !peer.said.empty()) {
      problem("member " + std::to_string(id), "spoke to the launcher and has no file");
    }
  }
  return problems_;
}

void TraceChecker::State::compare(const Json& recorded, const std::string& ours,
                                  const std::string& place) {
  const Json expected = Json::parse(ours);
  if (recorded != expected) {
    problem(place, "asks for " + recorded.dump() + " where the machine asks for " + ours);
  }
}

void TraceChecker::State::problem(const std::string& place, const std::string& what) {
  if (problems_.size() < kMostProblems) problems_.push_back(place + ": " + what);
}

TraceChecker::TraceChecker() : state_(std::make_unique<State>()) {}
TraceChecker::~TraceChecker() = default;

void TraceChecker::add(std::string_view line, const std::string& place) {
  state_->add(line, place);
}
const std::vector<std::string>& TraceChecker::finish() { return state_->finish(); }
const std::vector<std::string>& TraceChecker::finish_launcher() { return state_->problems(); }
std::uint64_t TraceChecker::lines() const { return state_->lines(); }
std::size_t TraceChecker::members() const { return state_->members(); }
StepNumber TraceChecker::steps() const { return state_->steps(); }

}  // namespace chainmail::membership
