#include "train/loop/progress.h"

#include <doctest/doctest.h>

#include <sstream>

using namespace tapeformer;

TEST_CASE("progress: plain lines every ten seconds, with an ETA from the steps of this process") {
  std::ostringstream out;
  double now = 100;
  Progress progress(out, ProgressStyle::plain, 50, 150, [&] { return now; });
  now = 110;
  progress.update({60, 0.5, 0.72134752, 12345, 3 << 20});
  CHECK(out.str() == "step 60/150  loss 0.5000  0.7213 bits/dim  12.3k tokens/s  ETA 1:30  3.0 MiB\n");
  now = 115;
  progress.update({65});
  CHECK(out.str().find("step 65") == std::string::npos);
  now = 120;
  progress.update({70});
  CHECK(out.str().find("step 70/150  loss 0.0000  0 tokens/s") != std::string::npos);
  now = 121;
  progress.update({150});
  CHECK(out.str().find("step 150/150") != std::string::npos);
}

TEST_CASE("progress: a terminal line is rewritten and stays below messages") {
  std::ostringstream out;
  {
    Progress progress(out, ProgressStyle::terminal, 0, 0, [] { return 0.0; });
    progress.update({1});
    progress.print_message("checkpoint written");
  }
  const std::string line = "step 1  loss 0.0000  0 tokens/s  0 B";
  CHECK(out.str() == "\r" + line + "\x1b[K\rcheckpoint written\x1b[K\n" + line + "\n");
}

TEST_CASE("progress: epoch, learning rate and the unit of the task are shown") {
  std::ostringstream out;
  double now = 0;
  Progress progress(
      out, ProgressStyle::plain, 0, 100, [&] { return now; }, "frames");
  now = 10;
  progress.update({.step = 10, .loss = 2, .tokens_per_second = 950, .epoch = 3, .lr = 0.0015});
  CHECK(out.str() == "step 10/100  epoch 3  loss 2.0000  lr 1.50e-03  950 frames/s  ETA 1:30  0 B\n");
}

TEST_CASE("progress: a narrow terminal shows neither learning rate nor epoch") {
  // The standard error of this test is not a terminal, so the display assumes 120 columns.
  const auto line = [](int64_t step, int64_t epoch = 7) {
    std::ostringstream out;
    Progress progress(out, ProgressStyle::terminal, step - 1, step, [] { return 0.0; });
    progress.update({step, 0.5, 0.72134752, 12345, 3 << 20, epoch, 0.1});
    return out.str();
  };
  CHECK(line(1).find("epoch 7  loss 0.5000  0.7213 bits/dim  lr 1.00e-01  12.3k") != std::string::npos);
  CHECK(line(100'000'000'000'000).find("epoch 7  loss 0.5000  0.7213 bits/dim  12.3k") != std::string::npos);
  CHECK(line(1'000'000'000'000'000'000, 1'000'000).find("  loss 0.5000  0.7213 bits/dim  12.3k") !=
        std::string::npos);
  CHECK(line(1'000'000'000'000'000'000, 1'000'000).find("epoch") == std::string::npos);
}

TEST_CASE("progress: control characters in messages are escaped") {
  std::ostringstream out;
  Progress progress(out, ProgressStyle::plain, 0, 10);
  progress.print_message("cannot write a\x1b[31m\nerror: forged");
  CHECK(out.str() == "cannot write a\\u001b[31m\n  error: forged\n");
}

TEST_CASE("progress: the ETA respects train.time_limit_minutes") {
  std::ostringstream out;
  double now = 0;
  Progress progress(out, ProgressStyle::plain, 0, 100, [&] { return now; });
  now = 10;
  progress.update({.step = 1, .seconds_left = 60});
  CHECK(out.str().find("ETA 1:00") != std::string::npos);
  now = 20;
  progress.update({.step = 2});
  CHECK(out.str().find("ETA 16:20") != std::string::npos);
}

TEST_CASE("progress: a silent display prints nothing") {
  std::ostringstream out;
  {
    Progress progress(out, ProgressStyle::silent, 0, 10);
    progress.update({10});
    progress.print_message("x");
  }
  CHECK(out.str().empty());
  CHECK(choose_progress_style(true) == ProgressStyle::silent);
}

TEST_CASE("durations, counts and bytes are printed with suitable units") {
  CHECK(format_duration(7.4) == "7s");
  CHECK(format_duration(185) == "3:05");
  CHECK(format_duration(3723) == "1:02:03");
  CHECK(format_duration(2 * 86400 + 3 * 3600) == "2d 03:00:00");
  CHECK(format_duration(1.0 / 0.0) == "?");
  CHECK(format_count(950) == "950");
  CHECK(format_count(4.5e6) == "4.5M");
  CHECK(format_bytes(512) == "512 B");
  CHECK(format_bytes(int64_t{5} << 40) == "5.0 TiB");
}
