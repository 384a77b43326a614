// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// libchainmail_mpi.so: MpiLibrary over Open MPI. The only file that includes mpi.h.
//
// One lock around all calls, whatever level of threads MPI grants: ours are short, and with
// MPI_THREAD_SERIALIZED they must not overlap.

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "ops/comm/mpi/mpi_api.h"

namespace chainmail::ops {
namespace {

static_assert(sizeof(MPI_Request) <= sizeof(std::uintptr_t));
static_assert(sizeof(MPI_Message) <= sizeof(std::uintptr_t));

constexpr std::chrono::seconds kDistrustfulWait{10};

std::uintptr_t to_handle(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
template <typename T>
T from_handle(std::uintptr_t handle) {
  return reinterpret_cast<T>(handle);  // NOLINT(performance-no-int-to-ptr)
}

std::string text_of(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) {
    return "MPI error " + std::to_string(code);
  }
  return {text.data(), static_cast<std::size_t>(length)};
}

const char* name_of_level(int level) {
  return level == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED";
}

std::string too_few_threads(int level) {
  return std::string("MPI runs with ") + name_of_level(level) +
         ", but a group's own thread calls it; have the program call MPI_Init_thread with "
         "MPI_THREAD_MULTIPLE (OMPI_MPI_THREAD_LEVEL=3 in the environment does that for a program "
         "that calls MPI_Init), or leave the call to Chainmail";
}

// Without any of these MPI_Init makes a world of one process.
bool has_starter() {
  for (const char* name : {"PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

class OpenMpi final : public MpiLibrary, public MpiApi {
 public:
  std::string refusal() override {
    int is_initialized = 0;
    int is_finalized = 0;
    MPI_Initialized(&is_initialized);
    MPI_Finalized(&is_finalized);
    if (is_finalized != 0) return "MPI_Finalize has been called in this process already";
    if (is_initialized == 0) {
      return has_starter() ? std::string()
                           : "no MPI starter is around this process (neither PMIX_RANK nor "
                             "PMI_RANK is set), so that MPI would see a world of one; start the "
                             "program with the launcher, mpiexec or srun --mpi=pmix";
    }
    int level = 0;
    MPI_Query_thread(&level);
    return level < MPI_THREAD_SERIALIZED ? too_few_threads(level) : std::string();
  }

  std::string start() override {
    const std::lock_guard lock(mutex_);
    int is_initialized = 0;
    MPI_Initialized(&is_initialized);
    if (is_initialized == 0) {
      int level = 0;
      const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
      if (code != MPI_SUCCESS) return "MPI_Init_thread: " + text_of(code);
      // Whoever initialises MPI finalises it.
      static_cast<void>(std::atexit([] { instance().finalize(); }));
      if (level < MPI_THREAD_SERIALIZED) return too_few_threads(level);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    int* max_tag = nullptr;
    int has_max_tag = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&max_tag), &has_max_tag);
    if (has_max_tag != 0) max_tag_ = *max_tag;
    // MPI_Finalize begins by deleting MPI_COMM_SELF's attributes: nothing of ours calls MPI then.
    int key = MPI_KEYVAL_INVALID;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &OpenMpi::on_finalize, &key, this);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, this);
    // The program's own messages cannot be taken for ours. Blocks nobody, unlike MPI_Comm_dup.
    const int code = MPI_Comm_idup(MPI_COMM_WORLD, &comm_, &duplication_);
    return code == MPI_SUCCESS ? std::string() : "MPI_Comm_idup: " + text_of(code);
  }

  bool is_ready() override {
    const std::lock_guard lock(mutex_);
    if (is_open_) return true;
    int is_done = 0;
    if (MPI_Test(&duplication_, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS || is_done == 0) {
      return false;
    }
    // A broken connection is an answer, not the end of the process.
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    is_open_ = true;
    return true;
  }

  MpiApi& api() override { return *this; }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  int max_tag() const noexcept override { return max_tag_; }

  MpiCode send(const std::byte* data, int bytes, int peer, int tag,
               MpiRequest& request) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!is_open_) return kMpiClosed;
    MPI_Request own = MPI_REQUEST_NULL;
    const int code = MPI_Isend(data, bytes, MPI_BYTE, peer, tag, comm_, &own);
    request.handle = to_handle(own);
    return code;
  }

  MpiCode probe(int source, int tag, bool& is_found, MpiArrival& arrival) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!is_open_) return kMpiClosed;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    int has_come = 0;
    const int from = source == kMpiAnySource ? MPI_ANY_SOURCE : source;
    int code = MPI_Improbe(from, tag, comm_, &has_come, &message, &status);
    is_found = code == MPI_SUCCESS && has_come != 0;
    if (!is_found) return code;
    code = MPI_Get_count(&status, MPI_BYTE, &arrival.bytes);
    arrival.source = status.MPI_SOURCE;
    arrival.message = to_handle(message);
    return code;
  }

  MpiCode receive(std::byte* data, const MpiArrival& arrival,
                  MpiRequest& request) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!is_open_) return kMpiClosed;
    auto message = from_handle<MPI_Message>(arrival.message);
    MPI_Request own = MPI_REQUEST_NULL;
    const int code = MPI_Imrecv(data, arrival.bytes, MPI_BYTE, &message, &own);
    request.handle = to_handle(own);
    return code;
  }

  MpiCode test(MpiRequest& request, bool& is_done) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!is_open_) return kMpiClosed;
    auto own = from_handle<MPI_Request>(request.handle);
    int has_ended = 0;
    const int code = MPI_Test(&own, &has_ended, MPI_STATUS_IGNORE);
    request.handle = to_handle(own);
    is_done = has_ended != 0;
    return code;
  }

  std::string describe(MpiCode code) const override {
    return code == kMpiClosed ? "MPI_Finalize has been called" : text_of(code);
  }

  void distrust_peers() noexcept override {
    const std::lock_guard lock(mutex_);
    is_distrustful_ = true;
  }

  static OpenMpi& instance() {
    // Never deleted: MPI lives as long as the process.
    static auto& library = *new OpenMpi();
    return library;
  }

 private:
  static int on_finalize(MPI_Comm /*comm*/, int /*key*/, void* /*value*/, void* self) {
    auto& library = *static_cast<OpenMpi*>(self);
    const std::lock_guard lock(library.mutex_);
    library.is_open_ = false;
    return MPI_SUCCESS;
  }

  // Waits for all processes, as at the end of any MPI program; mpiexec watches. After a failure
  // some may be stopped or cut off: then for a while only.
  void finalize() noexcept {
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_finalized != 0) return;
    if (!is_distrustful_) {
      MPI_Finalize();
      return;
    }
    const auto finalized = std::make_shared<std::promise<void>>();
    std::thread([finalized] {
      MPI_Finalize();
      finalized->set_value();
    }).detach();
    finalized->get_future().wait_for(kDistrustfulWait);
  }

  std::mutex mutex_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Request duplication_ = MPI_REQUEST_NULL;
  int rank_ = 0;
  int size_ = 1;
  int max_tag_ = 32767;  // the least that MPI promises
  bool is_open_ = false;
  bool is_distrustful_ = false;
};

}  // namespace
}  // namespace chainmail::ops

extern "C" __attribute__((visibility("default"))) chainmail::ops::MpiLibrary* chainmail_mpi_library(
    std::uint32_t version) {
  using chainmail::ops::OpenMpi;
  return version == chainmail::ops::kMpiLibraryVersion ? &OpenMpi::instance() : nullptr;
}
