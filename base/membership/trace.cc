// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/membership/trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"

namespace chainmail::membership {

void JsonObject::raw(std::string_view name, std::string_view json) {
  text_.append(text_.empty() ? "{\"" : ",\"").append(name).append("\":").append(json);
}

std::string JsonObject::text_of(const std::string& value) {
  using Json = nlohmann::json;
  return Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string trace_birth(const WorldOptions& options, const ResumePoint& resume) {
  JsonObject line;
  line("machine", std::string("world"));
  line("options", options);
  line("resume", resume);
  return line.take();
}

std::string trace_birth(MemberId id, const MemberOptions& options) {
  JsonObject line;
  line("machine", std::string("member"));
  line("id", id);
  line("options", options);
  return line.take();
}

std::string trace_line(const WorldEvent& event, const WorldActions& actions) {
  JsonObject line;
  line("machine", std::string("world"));
  line("in", event);
  line("out", actions);
  return line.take();
}

std::string trace_line(MemberId id, const MemberEvent& event, const MemberActions& actions,
                       std::uint64_t state) {
  JsonObject line;
  line("machine", std::string("member"));
  line("id", id);
  line("in", event);
  line("out", actions);
  const bool has_committed = std::any_of(actions.begin(), actions.end(), [](const auto& action) {
    return std::holds_alternative<Commit>(action);
  });
  if (has_committed) line("state", internal::to_hex(state));
  return line.take();
}

}  // namespace chainmail::membership
