#include "data/sets/verify.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "core/base/errors.h"
#include "data/files/gzip.h"
#include "tests/data/stand_ins.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("list reports the folder of every data set, or the searched folders") {
  const TempDir dir;
  write_tiny_mnist(dir / "mnist", 2, 2);
  std::filesystem::remove(dir / "mnist" / "t10k-labels-idx1-ubyte");
  const std::vector<DatasetReport> reports = list_dataset_reports(dir.path().string());
  REQUIRE(reports.size() ==
          list_dataset_names([](const CatalogueEntry& set) { return !set.files.empty(); }).size());
  for (const DatasetReport& report : reports) {
    CAPTURE(report.name);
    CHECK(report.searched_folders.front() == dir / report.name);
    if (report.name == "mnist") {
      CHECK(report.folder == dir / "mnist");
      CHECK(report.files.at(0).path == dir / "mnist" / "train-images-idx3-ubyte.gz");
      CHECK(report.files.at(0).problem.empty());
      CHECK(report.files.at(3).problem == "t10k-labels-idx1-ubyte: missing");
      CHECK(!report.is_valid());
    } else if (report.name == "cifar10") {
      CHECK(!report.folder);
      CHECK(report.files.size() == 6);
      CHECK(!report.is_valid());
    }
  }
}

TEST_CASE("verify reports files that differ, are corrupt or are missing") {
  const TempDir dir;
  const auto folder = dir / "mnist";
  write_tiny_mnist(folder, 2, 2);
  write_file(folder / "t10k-images-idx3-ubyte.gz", Bytes{0x1F, 0x8B, 8});
  std::filesystem::remove(folder / "t10k-labels-idx1-ubyte");
  const DatasetReport report = verify_dataset("mnist", dir.path().string());
  CHECK(!report.is_valid());
  CHECK(report.files.at(1).actual_bytes == 10);
  const std::string message = message_of<DataError>([&] { check_dataset_report(report); });
  CHECK(contains(message, "mnist: not as published, in " + folder.string() + "\n"));
  CHECK(contains(
      message,
      (folder / "train-labels-idx1-ubyte").string() +
          ": expected 60008 bytes with SHA-256 "
          "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5, found 10 bytes with SHA-256 "));
  CHECK(contains(message, "t10k-images-idx3-ubyte.gz: the gzip data ends early"));
  CHECK(contains(message, "t10k-labels-idx1-ubyte: missing"));
}

TEST_CASE("verify reports a data set that is missing, and refuses an unknown name") {
  const TempDir dir;
  const DatasetReport report = verify_dataset("cifar10", dir.path().string());
  CHECK(contains(message_of<DataError>([&] { check_dataset_report(report); }),
                 "cifar10: data set not found; looked in\n  " + (dir / "cifar10").string()));
  CHECK_THROWS_AS(verify_dataset("cifar11", ""), ConfigError);
}

TEST_CASE("Fashion-MNIST of the Debian package has the published checksums, and a changed byte is found") {
  if (!have_fashion_mnist()) return;
  const TempDir dir;
  const DatasetReport package = verify_dataset("fashion-mnist", dir.path().string());
  CHECK(package.is_valid());
  CHECK_NOTHROW(check_dataset_report(package));
  // Unpacked copies of the files also pass the verification.
  for (const FileReport& file : package.files) {
    Bytes bytes = read_unpacked(file.path, 1 << 30);
    write_file(dir / "fashion-mnist" / file.name, bytes);
  }
  CHECK(verify_dataset("fashion-mnist", dir.path().string()).is_valid());
  const auto labels = dir / "fashion-mnist" / "t10k-labels-idx1-ubyte";
  std::string bytes = read_file(labels);
  bytes[5000] ^= 1;
  write_file(labels, bytes);
  const DatasetReport changed = verify_dataset("fashion-mnist", dir.path().string());
  CHECK(contains(changed.files.at(3).problem,
                 "expected 10008 bytes with SHA-256 "
                 "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34, found 10008 bytes"));
  CHECK(changed.files.at(0).problem.empty());
}

namespace {

// Returns the SHA-256 of a file in hexadecimal, computed by the program sha256sum.
std::string sha256sum(const std::filesystem::path& path) {
  const TempDir dir;
  const std::string command = "sha256sum '" + path.string() + "' > '" + (dir / "sum").string() + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  return read_file(dir / "sum").substr(0, 64);
}

}  // namespace

TEST_CASE("generated MNIST and CIFAR-10 have the published sizes and other checksums") {
  const TempDir dir;
  write_stand_in_mnist(dir / "mnist");
  write_stand_in_cifar10(dir / "cifar10");
  for (const std::string name : {"mnist", "cifar10"}) {
    const DatasetReport report = verify_dataset(name, dir.path().string());
    CHECK(!report.is_valid());
    REQUIRE(report.files.size() == (name == "mnist" ? 4 : 6));
    for (size_t i = 0; i < report.files.size(); ++i) {
      const FileReport& file = report.files[i];
      CAPTURE(file.name);
      CHECK(file.actual_bytes == report.entry->files[i].bytes);
      CHECK(contains(file.problem, "found " + std::to_string(file.actual_bytes) + " bytes with SHA-256 " +
                                       sha256sum(file.path)));
    }
  }
}

TEST_CASE("the real MNIST has the published checksums") {
  if (!have_real("mnist")) {
    MESSAGE("skipped: no mnist in $TAPEFORMER_DATA");
    return;
  }
  CHECK_NOTHROW(check_dataset_report(verify_dataset("mnist", "")));
}

TEST_CASE("the real CIFAR-10 has the published checksums") {
  if (!have_real("cifar10")) {
    MESSAGE("skipped: no cifar10 in $TAPEFORMER_DATA");
    return;
  }
  CHECK_NOTHROW(check_dataset_report(verify_dataset("cifar10", "")));
}
