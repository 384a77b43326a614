// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/launcher/hosts/corpus.h"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace chainmail::launch {
namespace {

std::string unescaped(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    const char kind = text.at(++i);
    if (kind == 'x') {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      out += kind == 't' ? '\t' : kind == 'r' ? '\r' : kind;
    }
  }
  return out;
}

void add_variable(const std::string& rest, CorpusCase& one) {
  const std::size_t equals = rest.find('=');
  const std::string name = rest.substr(0, equals);
  const std::string value = rest.substr(equals + 1);
  if (value == "<") {
    one.file_variable = name;
  } else {
    one.variables[name] = value;
  }
}

void add_line(char mark, const std::string& rest, bool& has_text, CorpusCase& one) {
  if (mark == '|') {
    one.text += (has_text ? "\n" : "") + unescaped(rest);
    has_text = true;
  } else if (mark == '$') {
    add_variable(rest, one);
  } else if (mark == '>') {
    std::istringstream words(rest);
    for (std::string word; words >> word;) one.arguments.push_back(word);
  } else if (mark == '=') {
    one.expected.push_back(rest);
  } else if (mark == '!') {
    one.refusal = rest;
  } else {
    throw std::runtime_error(one.name() + ": a line begins with '" + mark + "'");
  }
}

}  // namespace

std::string CorpusCase::name() const {
  return "corpus.txt:" + std::to_string(line) + " " + kind + ": " + title;
}

std::vector<CorpusCase> read_corpus(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::vector<CorpusCase> cases;
  bool has_text = false;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const std::string rest = line.size() > 2 ? line.substr(2) : "";
    if (line.rfind("case ", 0) == 0) {
      const std::size_t colon = line.find(": ");
      cases.emplace_back();
      cases.back().line = number;
      cases.back().kind = line.substr(5, colon - 5);
      cases.back().title = line.substr(colon + 2);
      has_text = false;
    } else {
      add_line(line.front(), rest, has_text, cases.at(cases.size() - 1));
    }
  }
  for (const CorpusCase& one : cases) {
    if (one.expected.empty() == one.refusal.empty()) {
      throw std::runtime_error(one.name() + ": needs either '=' or '!'");
    }
  }
  return cases;
}

}  // namespace chainmail::launch
