// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/parallel/messages.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <chainmail/error.h>

#include "plugin/nn/parallel/heads.h"
#include "plugin/train/communicator/family.h"
#include "plugin/train/communicator/parts.h"

namespace chainmail::internal {

namespace {

constexpr int kMaxTag = (1 << 30) - 1;
constexpr std::uint32_t kGradientTags = kGraphTags | std::uint32_t{1} << 30;
// The engine remembers every tag. Where so many messages to a rank wait for their gradients, those
// that share a tag meet in the order of a walk backwards.
constexpr std::uint64_t kGradientTagCount = 4096;

// That of a million tensors would be less.
constexpr std::uint64_t kMaxHeadBytes = std::uint64_t{1} << 30;

constexpr char kMessage[] = "a message in a graph";
constexpr char kGradients[] = "gradients of a message";

// What goes first, forward.
struct Opening {
  std::uint64_t number = 0;  // of the sender's messages
  std::uint64_t head_bytes = 0;
};

// A message of a graph as both of its ends know it.
struct Message {
  std::shared_ptr<Communicator> communicator;
  int peer = 0;
  std::uint64_t number = 0;
  Head head;

  std::uint32_t gradient_tag() const {
    return kGradientTags | static_cast<std::uint32_t>(number % kGradientTagCount);
  }
  std::size_t gradient_count() const {
    std::size_t count = 0;
    for (const std::uint8_t needs : head.needs_gradient) count += needs;
    return count;
  }
};

void check_arguments(Communicator& communicator, ops::OpKind kind, int peer, int tag) {
  const Communicator::Impl& impl = communicator.impl();
  impl.check_usable();
  check_peer(impl, kind, peer, tag);
  const std::string what = kind == ops::OpKind::kSend ? "send: " : "recv: ";
  if (peer == communicator.rank()) {
    throw InvalidArgument(what + "rank " + std::to_string(peer) +
                          " is this rank itself; pass the tensor on without it");
  }
  if (tag > kMaxTag) {
    throw InvalidArgument(what + "tags in a graph are at most " + std::to_string(kMaxTag) +
                          ", got " + std::to_string(tag));
  }
}

std::uint32_t forward_tag(int tag) { return kGraphTags | static_cast<std::uint32_t>(tag); }

// Bytes and tensors that go one after another, and what keeps them.
class Parcel {
 public:
  /// `what` is what the other end calls the bytes, too: those who look for the cause of a long wait
  /// take other words for another operation.
  Parcel(std::string bytes, const char* what) : bytes_(std::move(bytes)), what_(what) {}
  void add(const at::Tensor& tensor) { tensors_.push_back(tensor); }

  static void send(std::shared_ptr<Parcel> parcel, Communicator& communicator, int peer,
                   std::uint32_t tag) {
    const auto send_part = [&](Part part, const Label& label) {
      transfer_with_tag(communicator.impl(), ops::OpKind::kSend, part, peer, tag, label, parcel);
    };
    send_part(part_of(parcel->bytes_), label_of(parcel->what_));
    for (const at::Tensor& tensor : parcel->tensors_) send_part(part_of(tensor), label_of(tensor));
  }

 private:
  std::string bytes_;
  const char* what_;
  std::vector<at::Tensor> tensors_;
};

void receive(Communicator& communicator, Part part, int peer, std::uint32_t tag,
             const Label& label) {
  transfer_with_tag(communicator.impl(), ops::OpKind::kRecv, part, peer, tag, label, nullptr);
}

template <typename T>
std::string as_bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// A gradient as its forward tensor lies in memory; a copy, since autograd may go on with its own.
at::Tensor dense_copy(const at::Tensor& gradient, const TensorShape& shape) {
  const at::NoGradGuard no_grad;
  at::Tensor copy = empty_of(shape);
  return copy.copy_(dense_gradient(gradient));
}

std::vector<at::Tensor> send_gradients(const Message& message,
                                       const std::vector<at::Tensor>& gradients) {
  message.communicator->impl().check_usable();
  std::string bytes = as_bytes(message.number);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (message.head.needs_gradient[i] != 0) bytes.push_back(gradients[i].defined() ? '\1' : '\0');
  }
  const auto parcel = std::make_shared<Parcel>(std::move(bytes), kGradients);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (message.head.needs_gradient[i] == 0 || !gradients[i].defined()) continue;
    parcel->add(dense_copy(gradients[i], message.head.shapes[i]));
  }
  Parcel::send(parcel, *message.communicator, message.peer, message.gradient_tag());
  return {};
}

[[noreturn]] void fail_with_number(const Message& message, std::uint64_t got) {
  end_for_mismatch(*message.communicator,
                   "backward of send on rank " + std::to_string(message.communicator->rank()) +
                       " waits for " + "the gradient of its message " +
                       std::to_string(message.number) + ", rank " + std::to_string(message.peer) +
                       " sent that of message " + std::to_string(got) +
                       "; use chainmail::Chain, which goes back in exact reverse order");
}

std::vector<at::Tensor> receive_gradients(const Message& message) {
  Communicator& communicator = *message.communicator;
  communicator.impl().check_usable();
  const std::uint32_t tag = message.gradient_tag();
  std::string bytes(sizeof message.number + message.gradient_count(), '\0');
  receive(communicator, part_of(bytes), message.peer, tag, label_of(kGradients));
  ObjectReader reader(bytes);
  std::uint64_t number = 0;
  reader.get(&number, sizeof number);
  if (number != message.number) fail_with_number(message, number);

  std::vector<at::Tensor> gradients(message.head.shapes.size());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (message.head.needs_gradient[i] == 0 || reader.take(1).front() == '\0') continue;
    gradients[i] = empty_of(message.head.shapes[i]);
    receive(communicator, part_of(gradients[i]), message.peer, tag, label_of(gradients[i]));
  }
  return gradients;
}

}  // namespace

Exchanged send_message(const std::shared_ptr<Communicator>& communicator, const at::Tensor& token,
                       at::ArrayRef<at::Tensor> tensors, int destination, int tag) {
  require_communicator(communicator, "send");
  check_arguments(*communicator, ops::OpKind::kSend, destination, tag);
  if (tensors.empty()) throw InvalidArgument("send: there are no tensors to send");
  Head head = head_of(tensors, tensors.size());
  if (!head.problem.empty()) throw InvalidArgument("send: " + head.problem);
  const Message message{communicator, destination, communicator->impl().graph_messages++,
                        std::move(head)};

  const std::string head_bytes = to_bytes(message.head);
  const auto opening =
      std::make_shared<Parcel>(as_bytes(Opening{message.number, head_bytes.size()}), kMessage);
  const auto parcel = std::make_shared<Parcel>(head_bytes, kMessage);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    parcel->add(dense_copy(tensors[i].detach(), message.head.shapes[i]));
  }
  Parcel::send(opening, *communicator, destination, forward_tag(tag));
  Parcel::send(parcel, *communicator, destination, forward_tag(tag));
  if (!needs_any(message.head)) return without_record(token, {});
  return record_exchange(token,
                         {.name = "send",
                          .arguments = tensors.vec(),
                          .results = {},
                          .have_gradients = {},
                          .backward = [message](const std::vector<at::Tensor>& /*gradients*/) {
                            return receive_gradients(message);
                          }});
}

Exchanged receive_message(const std::shared_ptr<Communicator>& communicator,
                          const at::Tensor& token, int source, int tag) {
  require_communicator(communicator, "recv");
  check_arguments(*communicator, ops::OpKind::kRecv, source, tag);
  const Label label = label_of(kMessage);
  Opening opening;
  receive(*communicator, {reinterpret_cast<std::byte*>(&opening), sizeof opening}, source,
          forward_tag(tag), label);
  if (opening.head_bytes > kMaxHeadBytes) {
    throw MismatchError("recv: a message with a head of " + std::to_string(opening.head_bytes) +
                        " bytes cannot be: the ranks do not run the same program");
  }
  std::string bytes(opening.head_bytes, '\0');
  receive(*communicator, part_of(bytes), source, forward_tag(tag), label);
  const Message message{communicator, source, opening.number, head_from_bytes(bytes)};

  std::vector<at::Tensor> results;
  std::vector<bool> have_gradients;
  for (std::size_t i = 0; i < message.head.shapes.size(); ++i) {
    results.push_back(empty_of(message.head.shapes[i]));
    receive(*communicator, part_of(results.back()), source, forward_tag(tag),
            label_of(results.back()));
    have_gradients.push_back(at::GradMode::is_enabled() && message.head.needs_gradient[i] != 0);
  }
  if (!needs_any(message.head)) return without_record(token, std::move(results));
  return record_exchange(token, {.name = "recv",
                                 .arguments = {},
                                 .results = std::move(results),
                                 .have_gradients = std::move(have_gradients),
                                 .backward = [message](const std::vector<at::Tensor>& gradients) {
                                   return send_gradients(message, gradients);
                                 }});
}

at::Tensor only_tensor(const std::vector<at::Tensor>& received) {
  if (received.size() != 1) {
    throw InvalidArgument("recv: the message has " + std::to_string(received.size()) +
                          " tensors; use recv_list");
  }
  return received.front();
}

}  // namespace chainmail::internal
