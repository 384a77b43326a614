// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/tree/tunnels.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "launcher/process/signals.h"
#include "launcher/tree/tunnel_wire.h"

namespace chainmail::launch {

class TunnelProcess : public AgentProcess {
 public:
  TunnelProcess(Tunnels& tunnels, std::uint32_t number, std::uint32_t parent,
                const AgentStart& start)
      : tunnels_(tunnels), number_(number), parent_(parent), image_(start.image) {
    tunnels_.open_[number_] = this;
    send(AgentMessage::kTunnelOpen, encode_fields(TunnelOrder{number_, start.command}));
  }
  ~TunnelProcess() override {
    stop_reading();
    tunnels_.open_.erase(number_);
  }
  TunnelProcess(const TunnelProcess&) = delete;
  TunnelProcess& operator=(const TunnelProcess&) = delete;

  std::shared_ptr<ByteTransport> connect(ByteStream::Callbacks callbacks) override {
    transport_ = std::make_shared<Transport>(*this, std::move(callbacks));
    return transport_;
  }
  void read_errors(std::function<void(std::span<const std::byte>)> on_bytes) override {
    on_error_bytes_ = std::move(on_bytes);
  }
  // All that was printed comes before the news of the end.
  void drain_errors() override {}
  void stop_reading() override {
    if (transport_) transport_->detach();
    on_error_bytes_ = nullptr;
  }
  void send_image(const AgentStart& start) override {
    send(AgentMessage::kTunnelImage, encode_fields(TunnelText{number_, start.image_checksum}));
  }
  void send_shared(std::uint32_t number, const SharedFrames& /*frames*/) override {
    send(AgentMessage::kTunnelShared, internal::BodyWriter().u32(number_).u32(number).take());
  }
  std::optional<Exit> reap() override { return std::exchange(exit_, std::nullopt); }
  void kill() override { send(AgentMessage::kTunnelKill, encode_fields(TunnelText{number_, ""})); }

  std::uint32_t parent() const noexcept { return parent_; }
  void send_own_image() { write(*image_); }
  void on_output(const TunnelOutput& output) {
    const auto bytes = std::as_bytes(std::span(output.bytes.data(), output.bytes.size()));
    if (output.stream == TunnelStream::kError) {
      if (on_error_bytes_ && !bytes.empty()) on_error_bytes_(bytes);
    } else if (transport_) {
      // What it does with them may end the link that holds the transport.
      const std::shared_ptr<Transport> transport = transport_;
      transport->deliver(bytes);
    }
  }
  void on_end(const TunnelEnd& end) {
    const bool has_exited = end.how == TunnelEnd::How::kExited;
    const auto value = static_cast<int>(end.value);
    exit_ = {has_exited ? value : -1, end.how == TunnelEnd::How::kNotStarted
                                          ? "could not be run there: " + end.reason
                                          : end_text(!has_exited, value)};
  }

 private:
  // Standard input and output of the command.
  class Transport : public ByteTransport {
   public:
    Transport(TunnelProcess& process, ByteStream::Callbacks callbacks)
        : process_(&process), callbacks_(std::move(callbacks)) {}
    void start() override {}
    void write(std::string bytes) override {
      if (is_open()) process_->write(bytes);
    }
    void write_urgent(std::string bytes) override {
      if (!is_open()) return;
      process_->tunnels_.send_urgent_(
          process_->parent_, AgentMessage::kTunnelUrgent,
          encode_fields(TunnelText{process_->number_, std::move(bytes)}));
    }
    // What waits does so in the queue of the agent that carries it.
    std::size_t queued_bytes() const noexcept override { return 0; }
    void close() override {
      if (!is_open()) return;
      process_->send(AgentMessage::kTunnelInput, encode_fields(TunnelText{process_->number_, ""}));
      process_ = nullptr;
    }
    bool is_open() const noexcept override { return process_ != nullptr; }

    void detach() { process_ = nullptr; }
    void deliver(std::span<const std::byte> bytes) {
      if (!is_open()) return;
      if (!bytes.empty()) return callbacks_.on_bytes(bytes);
      detach();
      callbacks_.on_end(kClosed);
    }

   private:
    TunnelProcess* process_;
    ByteStream::Callbacks callbacks_;
  };

  void send(AgentMessage type, std::string body) { tunnels_.send_(parent_, type, std::move(body)); }
  void write(std::string_view bytes) {
    for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kTunnelPieceBytes))) {
      send(AgentMessage::kTunnelInput,
           encode_fields(TunnelText{number_, std::string(bytes.substr(0, kTunnelPieceBytes))}));
    }
  }

  Tunnels& tunnels_;
  std::uint32_t number_;
  std::uint32_t parent_;
  std::shared_ptr<const std::string> image_;
  std::shared_ptr<Transport> transport_;
  std::function<void(std::span<const std::byte>)> on_error_bytes_;
  std::optional<Exit> exit_;
};

std::unique_ptr<AgentProcess> Tunnels::open(std::uint32_t parent, const AgentStart& start) {
  return std::make_unique<TunnelProcess>(*this, next_++, parent, start);
}

bool Tunnels::on_frame(std::uint32_t node, const internal::Frame& frame) {
  if (type_of(frame) == AgentMessage::kTunnelOutput) {
    const TunnelOutput output = decode_tunnel_output(frame.body);
    if (TunnelProcess* process = find(output.tunnel, node)) process->on_output(output);
  } else if (type_of(frame) == AgentMessage::kTunnelNoImage) {
    if (TunnelProcess* process = find(decode_tunnel_text(frame.body).tunnel, node)) {
      process->send_own_image();
    }
  } else {
    const TunnelEnd end = decode_tunnel_end(frame.body);
    TunnelProcess* process = find(end.tunnel, node);
    if (process == nullptr) return false;
    process->on_end(end);
    return true;
  }
  return false;
}

TunnelProcess* Tunnels::find(std::uint32_t tunnel, std::uint32_t node) {
  const auto found = open_.find(tunnel);
  if (found == open_.end()) {
    if (tunnel < next_) return nullptr;
  } else if (found->second->parent() == node) {
    return found->second;
  }
  throw SystemError("agent protocol: tunnel " + std::to_string(tunnel) + " is not of this agent",
                    EPROTO);
}

}  // namespace chainmail::launch
