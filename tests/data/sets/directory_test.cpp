#include "data/sets/directory.h"

#include <doctest/doctest.h>

#include "core/base/errors.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using Paths = std::vector<std::filesystem::path>;

}  // namespace

TEST_CASE("data directories are searched in the documented order") {
  const CatalogueEntry& mnist = require_catalogue_entry("mnist");
  const ScopedVariable own("TAPEFORMER_DATA", "/own"), xdg("XDG_DATA_HOME", "/xdg"), home("HOME", "/home/me");
  CHECK(list_candidate_folders(mnist, "") == Paths{"/own/mnist", "/xdg/tapeformer/mnist"});
  CHECK(list_candidate_folders(mnist, "named") == Paths{"named/mnist"});
  CHECK(list_candidate_folders(require_catalogue_entry("fashion-mnist"), "named") ==
        Paths{"named/fashion-mnist", "/usr/share/datasets/fashion-mnist"});
  {
    const ScopedVariable none("TAPEFORMER_DATA", std::nullopt), relative("XDG_DATA_HOME", "relative");
    CHECK(list_candidate_folders(mnist, "") == Paths{"/home/me/.local/share/tapeformer/mnist"});
  }
}

TEST_CASE("the first folder with a file of the data set is used, and an empty folder is skipped") {
  const TempDir dir;
  const ScopedVariable own("TAPEFORMER_DATA", (dir / "own").string());
  const ScopedVariable xdg("XDG_DATA_HOME", (dir / "xdg").string());
  std::filesystem::create_directories(dir / "own" / "mnist");
  CHECK(find_dataset_folder(require_catalogue_entry("mnist"), "") == std::nullopt);
  write_tiny_mnist(dir / "xdg" / "tapeformer" / "mnist", 1, 1);
  CHECK(require_dataset_folder(require_catalogue_entry("mnist"), "") == dir / "xdg" / "tapeformer" / "mnist");
  write_tiny_mnist(dir / "own" / "mnist", 1, 1);
  CHECK(require_dataset_folder(require_catalogue_entry("mnist"), "") == dir / "own" / "mnist");
  // If the user names a directory, no other directory is searched.
  CHECK(find_dataset_folder(require_catalogue_entry("mnist"), (dir / "elsewhere").string()) == std::nullopt);
}

TEST_CASE("a missing data set is a data error with the searched folders and its origin") {
  const TempDir dir;
  const ScopedVariable own("TAPEFORMER_DATA", (dir / "own").string());
  const ScopedVariable xdg("XDG_DATA_HOME", (dir / "xdg").string());
  std::filesystem::create_directories(dir / "own" / "cifar10");
  const std::string message =
      message_of<DataError>([] { require_dataset_folder(require_catalogue_entry("cifar10"), ""); });
  CHECK(contains(message,
                 "cifar10: data set not found; looked in\n  " + (dir / "own/cifar10").string() + "\n"));
  CHECK(contains(message, (dir / "xdg/tapeformer/cifar10").string() + " (no such folder)\n"));
  CHECK(contains(message, "in such a folder, run: curl -L https://www.cs.toronto.edu"));
  for (const CatalogueEntry& set : list_catalogue_entries()) CHECK(!set.download_instructions.empty());
  CHECK(contains(std::string(require_catalogue_entry("fashion-mnist").download_instructions),
                 "apt-get install dataset-fashion-mnist"));
}

TEST_CASE("plain and .gz files are found, and a missing file is an error with its name") {
  const TempDir dir;
  write_file(dir / "a.gz", std::string("x"));
  CHECK(require_file(dir.path(), "a") == dir / "a.gz");
  write_file(dir / "a", std::string("x"));
  CHECK(require_file(dir.path(), "a") == dir / "a");
  CHECK(message_of<DataError>([&] { require_file(dir.path(), "b"); }) ==
        (dir / "b").string() + ": no such file, neither plain nor as b.gz");
}

TEST_CASE("an unknown data set is a config error with a suggestion") {
  CHECK(message_of<ConfigError>([] { require_catalogue_entry("fashion_mnist"); }) ==
        "\"fashion_mnist\" is not a data set; did you mean \"fashion-mnist\"?");
  CHECK(message_of<ConfigError>([] { require_catalogue_entry("zzzzzzzzzzzz"); }) ==
        "\"zzzzzzzzzzzz\" is not a data set; there are mnist, fashion-mnist, cifar10, enwik8, text8, "
        "tatoeba-de-en, bible-en-es, wmt14-en-de, an4, fsdd, kaldi, timit, librispeech, "
        "synthetic-speech, cmudict");
}
