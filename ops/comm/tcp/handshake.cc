// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/tcp/handshake.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/bytes.h"

namespace chainmail::ops {
namespace {

using internal::Digest;
using internal::Nonce;

// The last character is the version of all that follows: handshake, frames and records.
constexpr std::array<char, 8> kMagic = {'c', 'h', 'a', 'i', 'n', 'm', 'a', '3'};
// Generation, the two ranks, and a digest of the group's name.
constexpr std::size_t kIdentityBytes = 12 + sizeof(Digest);
constexpr std::size_t kHelloBytes = kMagic.size() + kIdentityBytes + 1 + sizeof(Nonce);
constexpr std::size_t kChallengeBytes = sizeof(Nonce) + 1 + sizeof(Digest);
constexpr std::size_t kProofBytes = sizeof(Digest);
constexpr std::size_t kVerdictBytes = 1 + sizeof(Digest);
// What a proof is of: an end's role, or a verdict.
constexpr std::byte kAccept{'A'};
constexpr std::byte kYield{'Y'};
constexpr std::byte kDialerRole{'d'};
constexpr std::byte kAcceptorRole{'a'};

}  // namespace

Handshake::Handshake(internal::UniqueFd fd, const HandshakeIdentity& identity, int peer,
                     bool is_dialer, internal::Deadline deadline)
    : fd_(std::move(fd)),
      identity_(&identity),
      peer_(peer),
      is_dialer_(is_dialer),
      deadline_(deadline),
      own_nonce_(internal::random_nonce()) {}

Handshake::Handshake(internal::UniqueFd fd, const HandshakeIdentity& identity,
                     internal::Deadline deadline)
    : Handshake(std::move(fd), identity, -1, false, deadline) {}

Handshake::Handshake(internal::UniqueFd fd, const HandshakeIdentity& identity, int peer,
                     internal::Deadline deadline)
    : Handshake(std::move(fd), identity, peer, true, deadline) {}

void Handshake::append_identity(std::byte*& out) const {
  internal::put_number(out, identity_->generation);
  internal::put_number(out, static_cast<std::uint32_t>(dialer()));
  internal::put_number(out, static_cast<std::uint32_t>(acceptor()));
  const Digest group =
      internal::hmac_sha256("chainmail group", std::as_bytes(std::span(identity_->group)));
  out = std::copy(group.begin(), group.end(), out);
}

Digest Handshake::proof(std::byte role) const {
  std::array<std::byte, 1 + kIdentityBytes + 2 + 2 * sizeof(Nonce)> message{};
  std::byte* out = message.data();
  *out++ = role;
  append_identity(out);
  *out++ = static_cast<std::byte>(is_dialer_ ? identity_->encryption : peer_encryption_);
  *out++ = static_cast<std::byte>(is_dialer_ ? peer_encryption_ : identity_->encryption);
  out = std::copy(dialer_nonce().begin(), dialer_nonce().end(), out);
  std::copy(acceptor_nonce().begin(), acceptor_nonce().end(), out);
  return internal::hmac_sha256(identity_->secret, message);
}

std::optional<StreamKeys> Handshake::derive_keys() const {
  if (identity_->encryption == Encryption::kOff) return std::nullopt;
  return derive_stream_keys({.secret = identity_->secret,
                             .protocol = {kMagic.data(), kMagic.size()},
                             .group = identity_->group,
                             .generation = identity_->generation,
                             .size = identity_->size,
                             .dialer = dialer(),
                             .acceptor = acceptor(),
                             .encryption = identity_->encryption,
                             .nonce_of_dialer = dialer_nonce(),
                             .nonce_of_acceptor = acceptor_nonce()},
                            is_dialer_);
}

bool Handshake::take_peer_encryption(std::byte mode) noexcept {
  if (mode > static_cast<std::byte>(Encryption::kEncrypt)) return false;
  peer_encryption_ = static_cast<Encryption>(mode);
  return true;
}

// True once `bytes` bytes of the current message are in input_. Never reads past them: what follows
// belongs to the stream.
bool Handshake::read_exactly(std::size_t bytes) {
  while (got_ < bytes) {
    const ssize_t got = ::recv(fd_.get(), input_.data() + got_, bytes - got_, 0);
    if (got > 0) {
      got_ += static_cast<std::size_t>(got);
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    is_closed_ = got == 0 || (errno != EAGAIN && errno != ENOTCONN);
    return false;
  }
  got_ = 0;
  return true;
}

// A few bytes into the empty buffer of a new connection always fit.
bool Handshake::send_all(const std::byte* data, std::size_t bytes) noexcept {
  return ::send(fd_.get(), data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}

HandshakeState Handshake::advance() {
  const HandshakeState state = is_dialer_ ? advance_dialer() : advance_acceptor();
  return state == HandshakeState::kPending && is_closed_ ? HandshakeState::kClosed : state;
}

HandshakeState Handshake::advance_dialer() {
  if (step_ == Step::kHello) {
    std::array<std::byte, kHelloBytes> hello{};
    std::memcpy(hello.data(), kMagic.data(), kMagic.size());
    std::byte* out = hello.data() + kMagic.size();
    append_identity(out);
    *out++ = static_cast<std::byte>(identity_->encryption);
    std::copy(own_nonce_.begin(), own_nonce_.end(), out);
    if (!send_all(hello.data(), hello.size())) return HandshakeState::kClosed;
    step_ = Step::kChallenge;
  }
  if (step_ == Step::kChallenge) {
    if (!read_exactly(kChallengeBytes)) return HandshakeState::kPending;
    Digest claimed{};
    std::memcpy(peer_nonce_.data(), input_.data(), sizeof(Nonce));
    std::memcpy(claimed.data(), input_.data() + sizeof(Nonce) + 1, sizeof(Digest));
    if (!take_peer_encryption(input_[sizeof(Nonce)]) ||
        !internal::equal_in_constant_time(claimed, proof(kAcceptorRole))) {
      return HandshakeState::kRefused;
    }
    // Of a mismatch, too: the peer is to know whom it disagrees with.
    const Digest own = proof(kDialerRole);
    if (!send_all(own.data(), own.size())) return HandshakeState::kClosed;
    if (!agrees()) return HandshakeState::kMismatch;
    step_ = Step::kVerdict;
  }
  if (!read_exactly(kVerdictBytes)) return HandshakeState::kPending;
  Digest claimed{};
  std::memcpy(claimed.data(), input_.data() + 1, sizeof claimed);
  const std::byte verdict = input_[0];
  // The proofs of roles, which anybody on the way has seen, are no verdicts.
  if ((verdict != kAccept && verdict != kYield) ||
      !internal::equal_in_constant_time(claimed, proof(verdict))) {
    return HandshakeState::kRefused;
  }
  return verdict == kAccept ? HandshakeState::kAccepted : HandshakeState::kYielded;
}

HandshakeState Handshake::on_hello() {
  const std::byte* in = input_.data();
  if (std::memcmp(in, kMagic.data(), kMagic.size()) != 0) return HandshakeState::kStranger;
  const std::byte* rank = in + kMagic.size() + 4;
  const auto from = internal::take_number<std::uint32_t>(rank);
  if (from >= static_cast<std::uint32_t>(identity_->size)) return HandshakeState::kStranger;
  peer_ = static_cast<int>(from);
  std::array<std::byte, kIdentityBytes> expected{};
  std::byte* out = expected.data();
  append_identity(out);
  in += kMagic.size();
  if (peer_ == identity_->rank || std::memcmp(in, expected.data(), expected.size()) != 0) {
    return HandshakeState::kStranger;
  }
  in += kIdentityBytes;
  if (!take_peer_encryption(*in++)) return HandshakeState::kStranger;
  std::memcpy(peer_nonce_.data(), in, sizeof(Nonce));
  std::array<std::byte, kChallengeBytes> challenge{};
  const Digest own = proof(kAcceptorRole);
  std::memcpy(challenge.data(), own_nonce_.data(), sizeof(Nonce));
  challenge[sizeof(Nonce)] = static_cast<std::byte>(identity_->encryption);
  std::memcpy(challenge.data() + sizeof(Nonce) + 1, own.data(), sizeof(Digest));
  step_ = Step::kProof;
  return send_all(challenge.data(), challenge.size()) ? HandshakeState::kPending
                                                      : HandshakeState::kClosed;
}

HandshakeState Handshake::advance_acceptor() {
  if (step_ == Step::kHello) {
    if (!read_exactly(kHelloBytes)) return HandshakeState::kPending;
    const HandshakeState state = on_hello();
    if (state != HandshakeState::kPending) return state;
  }
  if (step_ == Step::kVerdict) return HandshakeState::kProven;
  if (!read_exactly(kProofBytes)) return HandshakeState::kPending;
  Digest claimed{};
  std::memcpy(claimed.data(), input_.data(), sizeof claimed);
  if (!internal::equal_in_constant_time(claimed, proof(kDialerRole))) {
    return HandshakeState::kStranger;
  }
  if (!agrees()) return HandshakeState::kMismatch;
  step_ = Step::kVerdict;
  return HandshakeState::kProven;
}

bool Handshake::send_verdict(bool accepts) {
  std::array<std::byte, kVerdictBytes> verdict{accepts ? kAccept : kYield};
  const Digest own = proof(verdict[0]);
  std::memcpy(verdict.data() + 1, own.data(), sizeof own);
  return send_all(verdict.data(), verdict.size());
}

}  // namespace chainmail::ops
