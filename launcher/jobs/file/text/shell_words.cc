// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/text/shell_words.h"

#include <algorithm>
#include <utility>

#include "launcher/job/expansion.h"
#include "launcher/remote/bootstrap.h"

namespace chainmail::launch {
namespace {

bool is_shell_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool is_in_variable(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::size_t variable_length(std::string_view text) {
  if (text.empty() || (text.front() >= '0' && text.front() <= '9')) return 0;
  const auto end = std::find_if_not(text.begin(), text.end(), is_in_variable);
  return static_cast<std::size_t>(end - text.begin());
}

// What stands at a '$' is added if it is a variable. Returns 1 for "$$", whose second one begins
// nothing, else 0.
std::size_t take_variable(std::string_view text, std::vector<NamedVariable>& found) {
  if (text.starts_with("$$")) return 1;
  const bool has_brace = text.starts_with("${");
  text.remove_prefix(has_brace ? 2 : 1);
  const std::size_t length = variable_length(text);
  if (length == 0) return 0;
  std::string_view behind = text.substr(length);
  if (has_brace && behind.starts_with('}')) behind.remove_prefix(1);
  found.push_back({std::string(text.substr(0, length)), behind});
  return 0;
}

class ShellSplitter {
 public:
  explicit ShellSplitter(std::string_view line) : line_(line) {}

  ShellWords split() {
    while (at_ < line_.size() && words_.problem.empty()) {
      const char c = line_[at_];
      if (is_shell_blank(c)) {
        end_word();
        ++at_;
      } else if (c == '\'') {
        take_single_quotes();
      } else if (c == '"') {
        take_double_quotes();
      } else {
        take_bare(c);
      }
    }
    end_word();
    if (!words_.problem.empty()) words_.patterns.clear();
    return std::move(words_);
  }

 private:
  void refuse(std::size_t at, const std::string& problem) {
    if (words_.problem.empty()) words_ = {{}, problem, at};
    at_ = line_.size();
  }

  void end_word() {
    if (has_word_) words_.patterns.push_back(std::move(word_));
    word_.clear();
    has_word_ = false;
    bare_name_ = std::string::npos;
  }

  void put(char c) {
    // "$A" before a letter of another piece.
    if (bare_name_ != std::string::npos && is_in_variable(c)) {
      word_.insert(bare_name_, "{");
      word_ += '}';
    }
    bare_name_ = std::string::npos;
    has_word_ = true;
    word_ += c;
    if (c == '$') word_ += c;
  }

  void take_single_quotes() {
    const std::size_t end = line_.find('\'', at_ + 1);
    if (end == std::string_view::npos) return refuse(at_, "the quote ' has no end");
    has_word_ = true;
    for (const char c : line_.substr(at_ + 1, end - at_ - 1)) put(c);
    at_ = end + 1;
  }

  void take_double_quotes() {
    const std::size_t begin = at_++;
    has_word_ = true;
    while (at_ < line_.size() && line_[at_] != '"') {
      const char c = line_[at_];
      if (c == '$') {
        take_dollar();
      } else if (c == '`') {
        refuse(at_, "`...` would run a command, and no shell reads this line");
      } else if (c == '\\' && at_ + 1 < line_.size() &&
                 std::string_view("$`\"\\\n").find(line_[at_ + 1]) != std::string_view::npos) {
        take_escaped();
      } else {
        put(c);
        ++at_;
      }
    }
    if (at_ >= line_.size()) return refuse(begin, "the quote \" has no end");
    ++at_;
  }

  void take_escaped() {
    const char c = line_[at_ + 1];
    if (c != '\n') put(c);  // otherwise the line goes on
    at_ += 2;
  }

  void take_bare(char c) {
    if (c == '\\') {
      if (at_ + 1 == line_.size()) return refuse(at_, "nothing follows the last backslash");
      return take_escaped();
    }
    if (c == '$') return take_dollar();
    if (c == '~' && !has_word_) return take_home();
    if (c == '`') return refuse(at_, "`...` would run a command, and no shell reads this line");
    if (std::string_view("*?[").find(c) != std::string_view::npos) {
      return refuse(at_, std::string("'") + c +
                             "' would be a pattern of file names, and no shell reads this line; "
                             "quote it if the program shall have it");
    }
    if (std::string_view(";|&<>()").find(c) != std::string_view::npos || (c == '#' && !has_word_)) {
      return refuse(at_, std::string("'") + c +
                             "' needs a shell, and none reads this line; quote "
                             "it, or use customMpiSettings, whose line sh reads");
    }
    put(c);
    ++at_;
  }

  void take_home() {
    const bool is_own =
        at_ + 1 == line_.size() || line_[at_ + 1] == '/' || is_shell_blank(line_[at_ + 1]);
    if (!is_own) return refuse(at_, "'~' of another user needs a shell; write the folder");
    put_name("HOME");
    ++at_;
  }

  void put_name(std::string_view name) {
    word_ += '$';
    bare_name_ = word_.size();
    word_ += name;
    has_word_ = true;
  }

  void take_dollar() {
    const std::string_view rest = line_.substr(at_ + 1);
    if (const std::size_t length = variable_length(rest); length > 0) {
      put_name(rest.substr(0, length));
      at_ += 1 + length;
      return;
    }
    if (rest.starts_with('(')) {
      return refuse(at_, "'$(...)' would run a command, and no shell reads this line");
    }
    if (rest.starts_with('{')) return take_braces(rest);
    if (!rest.empty() &&
        (rest.front() == '$' ||
         std::string_view("?@*#!-0123456789").find(rest.front()) != std::string_view::npos)) {
      return refuse(
          at_, std::string("'$") + rest.front() + "' is a shell's own; a dollar is written '\\$'");
    }
    put('$');
    ++at_;
  }

  void take_braces(std::string_view rest) {
    const std::size_t length = variable_length(rest.substr(1));
    if (length == 0 || rest.size() < length + 2 || rest[length + 1] != '}') {
      return refuse(at_, "'${...}' may hold a name, and nothing else");
    }
    word_ += "$";
    word_ += rest.substr(0, length + 2);
    bare_name_ = std::string::npos;
    has_word_ = true;
    at_ += length + 3;
  }

  std::string_view line_;
  std::size_t at_ = 0;
  ShellWords words_;
  std::string word_;
  bool has_word_ = false;                      // "" is a word
  std::size_t bare_name_ = std::string::npos;  // where the word's last piece begins, if it is $NAME
};

// Goes through a text for sh as far as quotes, comments and here-documents say what is a variable.
class VariableFinder {
 public:
  explicit VariableFinder(std::string_view text) : text_(text) {}

  std::vector<NamedVariable> find() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\\' && quote_ != '\'') {
        ++at_;
      } else if (c == quote_) {
        quote_ = '\0';
      } else if (quote_ == '\0' && (c == '\'' || c == '"')) {
        quote_ = c;
      } else if (c == '$' && quote_ != '\'') {
        at_ += take_variable(text_.substr(at_), found_);
      } else if (quote_ == '\0') {
        take_bare(c);
      }
    }
    return std::move(found_);
  }

 private:
  struct Document {
    std::string end;
    bool is_quoted;  // its variables mean themselves
    bool has_tabs;   // "<<-": tabs may stand before its lines
  };

  void take_bare(char c) {
    if (c == '#' && begins_word()) {
      at_ = std::min(text_.find('\n', at_), text_.size());
      if (at_ == text_.size()) return;
      c = '\n';
    }
    if (c == '\n') take_documents();
    const std::string_view rest = text_.substr(std::min(at_, text_.size()));
    if (rest.starts_with("<<<")) {
      at_ += 2;
    } else if (rest.starts_with("<<")) {
      ++at_;
      begin_document();
    }
  }

  [[nodiscard]] bool begins_word() const {
    return at_ == 0 || is_shell_blank(text_[at_ - 1]) ||
           std::string_view(";|&()<>").find(text_[at_ - 1]) != std::string_view::npos;
  }

  // At the second '<'; its word may be quoted in part.
  void begin_document() {
    Document document{"", false, at_ + 1 < text_.size() && text_[at_ + 1] == '-'};
    if (document.has_tabs) ++at_;
    std::size_t next = at_ + 1;
    while (next < text_.size() && (text_[next] == ' ' || text_[next] == '\t')) ++next;
    for (; next < text_.size(); ++next) {
      const char c = text_[next];
      const bool is_quote = c == '\'' || c == '"' || c == '\\';
      document.is_quoted = document.is_quoted || is_quote;
      if (is_shell_blank(c) || std::string_view(";|&()<>").find(c) != std::string_view::npos) break;
      if (!is_quote) document.end += c;
    }
    at_ = next - 1;
    if (!document.end.empty()) documents_.push_back(std::move(document));
  }

  // They follow the line that has named them; at its end.
  void take_documents() {
    for (const Document& document : std::exchange(documents_, {})) {
      while (at_ < text_.size()) {
        const std::size_t begin = std::min(at_ + 1, text_.size());
        at_ = std::min(text_.find('\n', begin), text_.size());
        std::string_view line = text_.substr(begin, at_ - begin);
        if (document.has_tabs)
          line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
        if (line == document.end) break;
        if (!document.is_quoted) take_line(line);
      }
    }
  }

  void take_line(std::string_view line) {
    for (std::size_t at = 0; at < line.size(); ++at) {
      if (line[at] == '\\') {
        ++at;
      } else if (line[at] == '$') {
        at += take_variable(line.substr(at), found_);
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  char quote_ = '\0';
  std::vector<Document> documents_;  // of this line
  std::vector<NamedVariable> found_;
};

}  // namespace

ShellWords split_shell_words(std::string_view line) { return ShellSplitter(line).split(); }

std::vector<NamedVariable> shell_variables(std::string_view line) {
  return VariableFinder(line).find();
}

std::vector<NamedVariable> pattern_variables(std::string_view pattern) {
  std::vector<NamedVariable> found;
  for (std::size_t at = pattern.find('$'); at < pattern.size(); at = pattern.find('$', at + 1)) {
    at += take_variable(pattern.substr(at), found);
  }
  return found;
}

std::string shell_word(const std::string& text) {
  const bool is_plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return is_in_variable(c) || std::string_view("@%+=:,./-").find(c) != std::string_view::npos;
  });
  return is_plain ? text : shell_quoted(text);
}

std::string shell_word_of_pattern(const std::string& pattern) {
  if (names_in(pattern).empty()) return shell_word(expanded(pattern, Environment()));
  std::string quoted = "\"";
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if (pattern.compare(at, 2, "$$") == 0) {
      quoted += "\\$";
      ++at;
    } else if (pattern.compare(at, 2, "${") == 0) {
      const std::size_t end = pattern.find('}', at);
      quoted += "${" + variable_of(pattern.substr(at + 2, end - at - 2)) + "}";
      at = end;
    } else if (c == '"' || c == '\\' || c == '`') {
      quoted += '\\';
      quoted += c;
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace chainmail::launch
