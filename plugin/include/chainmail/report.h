// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a training program tells its user: Chainer's PrintReport, LogReport, PlotReport and
// ProgressBar, and event files for TensorBoard.
//
// Local. ReportList calls them on rank 0 only, so that every rank runs the same code. One thread.

#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <chainmail/communicator.h>

namespace chainmail {

/// One report, usually at the end of an epoch.
struct ReportEntry {
  std::int64_t epoch = 0;                ///< whole ones done
  std::int64_t iteration = 0;            ///< done, counted from the start of training
  double elapsed_time = 0.0;             ///< seconds
  std::map<std::string, double> values;  ///< such as "main/loss"
};

/// How far training is, between reports.
struct TrainingProgress {
  std::int64_t iteration = 0;             ///< done, counted from the start of training
  std::int64_t iterations_per_epoch = 0;  ///< of this rank
  std::int64_t epochs = 0;                ///< in all
};

/// Something that shows or stores the values of a training program. To write one, override
/// report().
class CHAINMAIL_API Report {
 public:
  /// Leaves what was shown and stored.
  virtual ~Report();
  /// Shows or stores one entry.
  virtual void report(const ReportEntry& entry) = 0;
  /// After each iteration; must be cheap.
  virtual void progress(const TrainingProgress& progress);
  /// Training is over.
  virtual void finish();
};

/// A table with one line per report: columns at least 10 wide, two spaces apart, six significant
/// digits, as Chainer prints it.
class CHAINMAIL_API PrintReport final : public Report {
 public:
  /// `columns` are names of values, or epoch, iteration, elapsed_time. `clear_below` erases what is
  /// below each line, for a terminal that also shows a progress bar.
  PrintReport(std::vector<std::string> columns, std::ostream& out, bool clear_below = false);
  void report(const ReportEntry& entry) override;

 private:
  std::vector<std::string> columns_;
  std::ostream& out_;
  bool clear_below_;
  bool is_first_ = true;
};

/// All reports as a JSON list in a file, rewritten (by rename) at each report.
class CHAINMAIL_API LogReport final : public Report {
 public:
  /// @param resume_epoch  reports up to this epoch that `path` already holds are kept, the last one
  ///                      until it is made once more
  /// @throws SystemError  the folder cannot be made or written to
  explicit LogReport(std::string path, std::int64_t resume_epoch = 0);
  ~LogReport() override;
  void report(const ReportEntry& entry) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Curves of values over epochs or iterations as a picture (SVG), rewritten (by rename) at each
/// report. Values that are missing or not finite leave a gap.
class CHAINMAIL_API PlotReport final : public Report {
 public:
  /// @param names   of values, one curve each
  /// @param x_name  "epoch", "iteration" or "elapsed_time"
  /// @throws InvalidArgument  another x_name
  /// @throws SystemError      the folder cannot be made
  PlotReport(std::string path, std::vector<std::string> names, std::string x_name = "epoch");
  void report(const ReportEntry& entry) override;

 private:
  std::string path_;
  std::vector<std::string> names_;
  std::string x_name_;
  std::vector<ReportEntry> entries_;
};

/// All values as scalars in an event file that TensorBoard reads: one file per object, so give each
/// run a folder of its own. A value's step is the iteration. Every report is on disk at once.
class CHAINMAIL_API TensorBoardReport final : public Report {
 public:
  /// @throws SystemError  the folder or the file cannot be made
  explicit TensorBoardReport(const std::string& folder);
  ~TensorBoardReport() override;
  void report(const ReportEntry& entry) override;
  /// The path of the event file.
  const std::string& path() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Chainer's four lines (total, this epoch, counts, speed), redrawn in place a few times a second.
class CHAINMAIL_API ProgressBar final : public Report {
 public:
  /// Draws on `out`, which must be a terminal and live as long as this.
  explicit ProgressBar(std::ostream& out);
  /// Does nothing: a bar shows progress only.
  void report(const ReportEntry& entry) override;
  void progress(const TrainingProgress& progress) override;
  void finish() override;

 private:
  std::ostream& out_;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point drawn_;
  std::int64_t first_iteration_ = -1;
};

/// True when standard output is a terminal that a progress bar can be drawn on and nobody started
/// this program as a rank; under the launcher, when the launcher itself writes to a terminal. False
/// under mpirun, srun, torchrun and the like, whose ranks cannot know where their output goes.
[[nodiscard]] CHAINMAIL_API bool can_draw_progress();

/// The reports of a program: forwards to all of them on rank 0, does nothing on other ranks.
class CHAINMAIL_API ReportList {
 public:
  /// An empty list. Local.
  explicit ReportList(const Communicator& communicator);
  /// Constructs R(arguments...) on rank 0.
  template <typename R, typename... Arguments>
  void add(Arguments&&... arguments) {
    if (is_active_) reports_.push_back(std::make_unique<R>(std::forward<Arguments>(arguments)...));
  }
  /// Calls report() of all.
  void report(const ReportEntry& entry);
  /// Calls progress() of all.
  void progress(const TrainingProgress& progress);
  /// Calls finish() of all.
  void finish();

 private:
  bool is_active_;
  std::vector<std::unique_ptr<Report>> reports_;
};

}  // namespace chainmail
