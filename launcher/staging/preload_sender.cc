// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/staging/preload_sender.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/job/job_protocol.h"

namespace chainmail::launch {
namespace {

// Per host: enough for a fast link, and little with many hosts.
constexpr std::size_t kMostPiecesUnderWay = 4;

}  // namespace

PreloadSender::PreloadSender(const PreloadSource& source, std::size_t nodes, Callbacks callbacks)
    : source_(source), callbacks_(std::move(callbacks)), nodes_(nodes) {}

void PreloadSender::send(std::uint32_t number, std::vector<std::size_t> files) {
  std::vector<PreloadedFile> list;
  for (const std::size_t file : files) list.push_back(source_.files()[file]);
  Node& node = nodes_[number];
  node.files = std::move(files);
  node.current = 0;
  node.sent = 0;
  node.is_waiting = true;
  callbacks_.send(number, encode_preload_list(list));
  send_more(number);
}

void PreloadSender::send_more(std::uint32_t number) {
  Node& node = nodes_[number];
  while (node.pieces_under_way < kMostPiecesUnderWay && node.current < node.files.size()) {
    const std::size_t file = node.files[node.current];
    const std::uint64_t left = source_.files()[file].bytes - node.sent;
    if (left == 0) {
      ++node.current;
      node.sent = 0;
      continue;
    }
    const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(left, kPreloadPieceBytes));
    callbacks_.send(number,
                    encode_preload(PreloadOp::kPiece, source_.read(file, node.sent, bytes)));
    node.sent += bytes;
    ++node.pieces_under_way;
  }
}

void PreloadSender::handle(std::uint32_t number, std::string_view bytes) {
  Node& node = nodes_[number];
  internal::BodyReader body(bytes);
  const auto op = static_cast<PreloadOp>(body.u8());
  const std::string text = body.text();
  if (op == PreloadOp::kTaken && node.pieces_under_way > 0) {
    --node.pieces_under_way;
    send_more(number);
  } else if (op == PreloadOp::kStored && node.is_waiting && !text.empty()) {
    node.folder = text;
    node.is_waiting = false;
    callbacks_.on_stored(number);
  } else if (op == PreloadOp::kFailed) {
    node.current = node.files.size();
    callbacks_.on_failed(number, text);
  } else {
    throw SystemError("files to preload: an answer to nothing", EPROTO);
  }
}

}  // namespace chainmail::launch
