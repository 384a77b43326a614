// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/job_request.h"

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace chainmail::launch {
namespace {

using Json = nlohmann::ordered_json;
using Verb = JobRequest::Verb;

struct NamedVerb {
  Verb verb;
  const char* name;
};
constexpr NamedVerb kVerbs[] = {
    {Verb::kStatus, "status"}, {Verb::kAdd, "add"}, {Verb::kDrain, "drain"}};

// Names of hosts and programs may hold any bytes.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// What `read` makes of a text; its own errors, and the library's, become one.
template <typename Read>
auto parsed(const std::string& text, const Read& read) {
  try {
    return read(Json::parse(text));
  } catch (const Json::exception& error) {
    throw SystemError(std::string("control socket of a job: ") + error.what(), EPROTO);
  }
}

Json to_json(const JobStatus& status) {
  Json json = {{"pid", status.pid},         {"job", status.id},
               {"program", status.program}, {"hosts_file", status.hosts_file},
               {"sizes", status.sizes},     {"state", status.state},
               {"world", status.world},     {"size", status.size},
               {"step", status.step},       {"hosts", Json::array()}};
  for (const HostStatus& host : status.hosts) {
    json["hosts"].push_back({{"host", host.host},
                             {"slots", host.slots},
                             {"state", host.state},
                             {"members", host.members}});
  }
  return json;
}

JobStatus to_status(const Json& json) {
  JobStatus status;
  json.at("pid").get_to(status.pid);
  json.at("job").get_to(status.id);
  json.at("program").get_to(status.program);
  json.at("hosts_file").get_to(status.hosts_file);
  json.at("sizes").get_to(status.sizes);
  json.at("state").get_to(status.state);
  json.at("world").get_to(status.world);
  json.at("size").get_to(status.size);
  json.at("step").get_to(status.step);
  for (const Json& host : json.at("hosts")) {
    status.hosts.push_back(
        {host.at("host"), host.at("slots"), host.at("state"), host.at("members")});
  }
  return status;
}

}  // namespace

std::string json_of(const JobRequest& request) {
  for (const NamedVerb& known : kVerbs) {
    if (known.verb != request.verb) continue;
    return text_of({{"verb", known.name}, {"hosts", request.hosts}});
  }
  return "{}";
}

std::string json_of(const JobAnswer& answer) {
  return text_of(
      {{"error", answer.error}, {"said", answer.said}, {"status", to_json(answer.status)}});
}

JobRequest request_of(const std::string& json) {
  return parsed(json, [](const Json& read) {
    const std::string verb = read.at("verb");
    for (const NamedVerb& known : kVerbs) {
      if (known.name == verb) return JobRequest{known.verb, read.at("hosts")};
    }
    throw SystemError("control socket of a job: there is no command " + verb, EPROTO);
  });
}

JobAnswer answer_of(const std::string& json) {
  return parsed(json, [](const Json& read) {
    return JobAnswer{read.at("error"), read.at("said"), to_status(read.at("status"))};
  });
}

}  // namespace chainmail::launch
