// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How two ranks prove to each other, before anything else is read, that they belong to the same
// job, group and generation: HMAC-SHA256 under the job's secret over both sides' random numbers and
// what they want of the connection, so that nobody on the way can talk them out of encryption. All
// messages have fixed sizes; a stranger can neither make us allocate nor wait.
//
// Not thread-safe. Dialer: Hello, Proof. Acceptor: Challenge (with its own proof), verdict (with a
// proof, too).

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/crypto/keys.h"
#include "base/deadline.h"
#include "base/unique_fd.h"
#include "ops/comm/tcp/stream/stream_keys.h"
#include "ops/types.h"

namespace chainmail::ops {

/// What both ends must have in common.
struct HandshakeIdentity {
  std::string secret;
  std::string group;
  std::uint32_t generation = 0;
  int rank = 0;  ///< this rank
  int size = 0;
  Encryption encryption = Encryption::kOff;  ///< what this rank wants of its connections
};

enum class HandshakeState {
  kPending,
  kProven,    ///< acceptor: the peer is genuine; a verdict is due
  kAccepted,  ///< dialer: the connection may be used
  kYielded,   ///< dialer: the peer prefers the connection that it is making itself
  kClosed,    ///< the other end is gone; may be tried again
  kRefused,   ///< dialer: the other end does not know the job's secret
  kStranger,  ///< acceptor: nonsense, or another job
  kMismatch   ///< the peer is genuine and wants another encryption, see peer_encryption()
};

class Handshake {
 public:
  /// Accepting end of a new connection.
  Handshake(internal::UniqueFd fd, const HandshakeIdentity& identity, internal::Deadline deadline);
  /// Dialing end; the socket may be connecting still.
  Handshake(internal::UniqueFd fd, const HandshakeIdentity& identity, int peer,
            internal::Deadline deadline);

  /// Reads and writes what can be without waiting.
  HandshakeState advance();
  /// Acceptor, once proven. True when the verdict could be sent.
  bool send_verdict(bool accepts);

  int peer() const noexcept { return peer_; }
  /// What the peer wants; proven where advance() says that the peer is, or kMismatch.
  Encryption peer_encryption() const noexcept { return peer_encryption_; }
  /// Once proven (acceptor) or accepted (dialer): the keys of this connection, of this end. Nothing
  /// where nothing is sealed.
  std::optional<StreamKeys> derive_keys() const;
  int fd() const noexcept { return fd_.get(); }
  internal::UniqueFd take_fd() noexcept { return std::move(fd_); }
  bool has_expired() const { return deadline_.has_passed(); }

 private:
  Handshake(internal::UniqueFd fd, const HandshakeIdentity& identity, int peer, bool is_dialer,
            internal::Deadline deadline);

  enum class Step { kHello, kChallenge, kProof, kVerdict };

  bool read_exactly(std::size_t bytes);
  bool send_all(const std::byte* data, std::size_t bytes) noexcept;
  HandshakeState advance_dialer();
  HandshakeState advance_acceptor();
  HandshakeState on_hello();
  internal::Digest proof(std::byte role) const;
  bool take_peer_encryption(std::byte mode) noexcept;
  bool agrees() const noexcept { return peer_encryption_ == identity_->encryption; }
  int dialer() const noexcept { return is_dialer_ ? identity_->rank : peer_; }
  int acceptor() const noexcept { return is_dialer_ ? peer_ : identity_->rank; }
  const internal::Nonce& dialer_nonce() const { return is_dialer_ ? own_nonce_ : peer_nonce_; }
  const internal::Nonce& acceptor_nonce() const { return is_dialer_ ? peer_nonce_ : own_nonce_; }
  void append_identity(std::byte*& out) const;

  internal::UniqueFd fd_;
  const HandshakeIdentity* identity_;
  int peer_;
  Encryption peer_encryption_ = Encryption::kOff;
  bool is_dialer_;
  Step step_ = Step::kHello;
  bool is_closed_ = false;
  internal::Deadline deadline_;
  internal::Nonce own_nonce_;
  internal::Nonce peer_nonce_{};
  std::array<std::byte, 128> input_{};
  std::size_t got_ = 0;
};

}  // namespace chainmail::ops
