// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/tree/shared_texts.h"

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "launcher/tree/tunnel_wire.h"

namespace chainmail::launch {
namespace {

constexpr std::size_t kPieceBytes = 256 << 10;

[[noreturn]] void refuse(std::uint32_t number, const std::string& what) {
  throw SystemError("agent protocol: shared text " + std::to_string(number) + " " + what, EPROTO);
}

std::shared_ptr<const std::string> encode_part(std::uint32_t number, std::string_view piece) {
  return std::make_shared<const std::string>(internal::encode_frame(make_frame(
      AgentMessage::kSharedPart, encode_fields(TunnelText{number, std::string(piece)}))));
}

}  // namespace

SharedFrames cut_shared(std::uint32_t number, std::string_view text) {
  SharedFrames frames;
  for (; !text.empty(); text.remove_prefix(std::min(text.size(), kPieceBytes))) {
    frames.push_back(encode_part(number, text.substr(0, kPieceBytes)));
  }
  frames.push_back(encode_part(number, {}));
  return frames;
}

void SharedTexts::on_frame(const internal::Frame& frame) {
  const TunnelText part = decode_tunnel_text(frame.body);
  if (type_of(frame) == AgentMessage::kSharedDrop) {
    const auto found = texts_.find(part.tunnel);
    if (found == texts_.end()) return;
    bytes_ -= found->second.bytes;
    texts_.erase(found);
    return;
  }
  Text& text = texts_[part.tunnel];
  if (text.is_whole) refuse(part.tunnel, "goes on after its end");
  if (bytes_ + part.text.size() > kMostBytes) refuse(part.tunnel, "is too long");
  bytes_ += part.text.size();
  text.bytes += part.text.size();
  text.is_whole = part.text.empty();
  text.frames.push_back(std::make_shared<const std::string>(internal::encode_frame(frame)));
}

const SharedTexts::Text& SharedTexts::whole(std::uint32_t number) const {
  const auto found = texts_.find(number);
  if (found == texts_.end() || !found->second.is_whole) refuse(number, "has not come");
  return found->second;
}

const SharedFrames& SharedTexts::frames(std::uint32_t number) const { return whole(number).frames; }

std::string SharedTexts::text(std::uint32_t number) const {
  const Text& text = whole(number);
  const std::size_t head = text.frames.back()->size();  // the last one is nothing else
  std::string bytes;
  bytes.reserve(text.bytes);
  for (const auto& frame : text.frames) bytes += std::string_view(*frame).substr(head);
  return bytes;
}

}  // namespace chainmail::launch
