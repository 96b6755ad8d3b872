#include "data/sets/fetch.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "core/base/errors.h"
#include "data/files/checksum.h"
#include "data/files/download.h"
#include "data/files/gzip.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

const char* const kPackage = "/usr/share/datasets/fashion-mnist";

// An HTTP server at 127.0.0.1 for the files of a folder. The path /broken returns status 500, /moved/NAME
// redirects to NAME, and other paths without a file return 404. The response to NAME?cut announces the length
// of the file, but contains only half of its bytes.
class TinyServer {
 public:
  explicit TinyServer(std::filesystem::path folder) : folder_(std::move(folder)) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 8) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error("no server");
    url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::jthread([this] { serve(); });
  }
  TinyServer(const TinyServer&) = delete;
  TinyServer& operator=(const TinyServer&) = delete;
  ~TinyServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string url;

 private:
  void serve() const {
    for (int client; (client = accept(listener_, nullptr, nullptr)) >= 0; close(client)) {
      std::string request;
      char buffer[1024];
      while (!contains(request, "\r\n\r\n")) {
        const ssize_t count = recv(client, buffer, sizeof buffer, 0);
        if (count <= 0) break;
        request.append(buffer, static_cast<size_t>(count));
      }
      const size_t start = request.find('/') + 1;
      answer(client, request.substr(start, request.find(' ', start) - start));
    }
  }
  void answer(int client, std::string name) const {
    const bool cut = name.ends_with("?cut");
    if (cut) name.resize(name.size() - 4);
    const bool found = std::filesystem::is_regular_file(folder_ / name);
    const std::string body = found ? read_file(folder_ / name) : "no";
    const bool moved = name.starts_with("moved/");
    const std::string status = found              ? "200 OK"
                               : name == "broken" ? "500 Oops"
                               : moved            ? "302 Found\r\nLocation: " + url + "/" + name.substr(6)
                                                  : "404 Not Found";
    const std::string text =
        concat_text("HTTP/1.1 ", status, "\r\nConnection: close\r\nContent-Length: ", body.size(), "\r\n\r\n",
                    body.substr(0, body.size() / (cut ? 2 : 1)));
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t count = send(client, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += static_cast<size_t>(count);
    }
  }

  std::filesystem::path folder_;
  int listener_;
  std::jthread thread_;
};

// Returns the downloaded contents, or std::nullopt if the server does not have the file.
std::optional<std::string> downloaded(const std::string& url, int64_t max_bytes) {
  const TempDir dir;
  const std::string path = (dir / "file").string();
  File file(path, O_WRONLY | O_CREAT);
  if (!download(url, file, max_bytes)) return std::nullopt;
  return tapeformer::read_file(path);
}

std::string tar_number(size_t number) {
  char text[13];
  std::snprintf(text, sizeof text, "%011zo", number);
  return {text, 12};
}

// Returns one member of a tar archive, which consists of a header and the contents `body`, padded to a
// multiple of 512 bytes. `type` is '0' for a regular file, or '2' for a symbolic link to /etc/passwd.
std::string tar_member(const std::string& path, const std::string& body, char type = '0') {
  std::string head = path;
  head.resize(100);
  head += tar_number(0644).substr(4) + tar_number(0).substr(4) + tar_number(0).substr(4) +
          tar_number(body.size()) + tar_number(0) + std::string(8, ' ') + type;
  head += type == '2' ? "/etc/passwd" : "";
  head.resize(512);
  size_t sum = 0;
  for (const char c : head) sum += static_cast<uint8_t>(c);
  head.replace(148, 8, tar_number(sum).substr(5, 6) + std::string("\0 ", 2));
  return head + body + std::string((512 - body.size() % 512) % 512, '\0');
}

// Returns a zip archive of files without compression. A file is a pair of its path and its contents.
std::string stored_zip(const std::vector<std::pair<std::string, std::string>>& files) {
  const auto number = [](size_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
    return text;
  };
  std::string zip, directory;
  for (const auto& [path, body] : files) {
    const std::string fields = number(20, 2) + number(0, 8) + number(compute_checksum(body).crc32, 4) +
                               number(body.size(), 4) + number(body.size(), 4) + number(path.size(), 2) +
                               number(0, 2);
    directory += "PK\1\2" + number(20, 2) + fields + number(0, 10) + number(zip.size(), 4) + path;
    zip += "PK\3\4" + fields + path + body;
  }
  return zip + directory + "PK\5\6" + number(0, 4) + number(files.size(), 2) + number(files.size(), 2) +
         number(directory.size(), 4) + number(zip.size(), 4) + number(0, 2);
}

std::string unpacked(const std::string& path) {
  const Bytes bytes = read_unpacked(path, int64_t{1} << 30);
  return std::string(view_as_text(bytes, bytes.size()));
}

size_t entries(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

std::string fetch_error(const std::string& name, const std::filesystem::path& data_dir,
                        const std::string& from) {
  return message_of<DataError>([&] { fetch_dataset(name, data_dir.string(), from); });
}

}  // namespace

TEST_CASE("fetch from a folder copies verified files, replaces damaged files and keeps good files") {
  if (!have_fashion_mnist()) return;
  const TempDir dir;
  const auto folder = dir / "data" / "fashion-mnist";
  const auto data_dir = dir / "data";
  const DatasetReport report =
      fetch_dataset("fashion-mnist", data_dir.string(), std::string("file://") + kPackage + "/");
  CHECK(report.is_valid());
  CHECK(report.folder == folder);
  CHECK(entries(folder) == 4);

  write_file(folder / "t10k-labels-idx1-ubyte", std::string("not the labels"));
  const auto images = folder / "train-images-idx3-ubyte.gz";
  const auto written = std::filesystem::last_write_time(images);
  CHECK(fetch_dataset("fashion-mnist", data_dir.string(), kPackage).is_valid());
  CHECK(entries(folder) == 4);
  CHECK(std::filesystem::last_write_time(images) == written);
}

TEST_CASE("fetch keeps no file that differs from the published file") {
  if (!have_fashion_mnist()) return;
  const TempDir dir;
  write_tiny_mnist(dir / "source", 2, 2);
  const auto data_dir = dir / "data";
  const std::string first = (dir / "source" / "train-images-idx3-ubyte.gz").string();
  const std::string error = fetch_error("mnist", data_dir, (dir / "source").string());
  CHECK(contains(error, first + ": expected 47040016 bytes with SHA-256 "
                                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db, "
                                "found 64 bytes with SHA-256"));
  CHECK(entries(data_dir / "mnist") == 0);

  std::string whole = read_file(std::string(kPackage) + "/train-images-idx3-ubyte.gz");
  write_file(first, whole.substr(0, whole.size() - 5));
  CHECK(contains(fetch_error("fashion-mnist", data_dir, (dir / "source").string()),
                 "the gzip data ends early"));
  CHECK(entries(data_dir / "fashion-mnist") == 0);
}

TEST_CASE("fetch does not write through a link that has the name of an unfinished file") {
  const TempDir dir;
  write_tiny_mnist(dir / "source", 2, 2);
  write_file(dir / "victim", std::string("precious"));
  std::filesystem::create_directories(dir / "data/mnist");
  std::filesystem::create_symlink(dir / "victim", dir / "data/mnist/train-images-idx3-ubyte.part");
  CHECK(contains(fetch_error("mnist", dir / "data", (dir / "source").string()), "found 64 bytes"));
  CHECK(read_file(dir / "victim") == "precious");
}

TEST_CASE("fetch reports missing files, and explains how to get data sets that it cannot fetch") {
  const TempDir dir;
  CHECK(contains(fetch_error("mnist", dir.path(), (dir / "none").string()),
                 (dir / "none" / "train-images-idx3-ubyte").string() + ": no such file, neither"));
  CHECK_THROWS_AS(fetch_dataset("minst", dir.path().string()), ConfigError);
  write_file(dir / "file", std::string("x"));
  CHECK(contains(
      message_of<std::runtime_error>([&] { fetch_dataset("mnist", (dir / "file").string(), kPackage); }),
      "cannot create the folder " + (dir / "file" / "mnist").string()));
}

TEST_CASE("fetch downloads over http from this machine") {
  if (!can_download()) {
    MESSAGE("skipped: built without libcurl");
    return;
  }
  const ScopedVariable no_proxy("no_proxy", "127.0.0.1");
  const TempDir dir;
  const TinyServer server(kPackage);
  CHECK(fetch_dataset("fashion-mnist", dir.path().string(), server.url).is_valid());
  CHECK(contains(fetch_error("cifar10", dir.path(), server.url), "data_batch_1.bin: no such file, neither"));
}

namespace {

// Writes the archives of WMT'14 with one to three short lines per file, and with files of other languages.
void write_stand_in_wmt14(const std::filesystem::path& folder) {
  const auto pair = [](const std::string& name, const std::string& en, const std::string& de) {
    return tar_member(name + ".en", en) + tar_member(name + ".de", de);
  };
  const auto write_archive = [&](const std::string& name, const std::string& members) {
    const std::string tar = members + std::string(1024, '\0');
    write_file(folder / name, gzipped(Bytes(tar.begin(), tar.end())));
  };
  write_archive("training-parallel-europarl-v7.tgz", pair("training/europarl-v7.fr-en", "no\n", "non\n") +
                                                         pair("training/europarl-v7.de-en", "a\nb", "A\nB"));
  write_archive("training-parallel-commoncrawl.tgz", pair("commoncrawl.de-en", "c\n", "C\n"));
  write_archive("training-parallel-nc-v9.tgz", pair("training/news-commentary-v9.de-en", "d\n", "D\n"));
  write_archive("dev.tgz", pair("dev/newstest2012", "x\n", "x\n") + pair("dev/newstest2013", "v\n", "V\n"));
  write_archive(
      "test-full.tgz",
      tar_member("test-full/newstest2014-deen-src.en.sgm",
                 "<srcset>\n<p>\n<seg id=\"1\">one &amp; two</seg>\n<seg id=\"2\"> three </seg>\n</p>\n") +
          tar_member("test-full/newstest2014-deen-ref.de.sgm",
                     "<seg id=\"1\">eins</seg>\n<seg id=\"2\">drei</seg>\n"));
}

}  // namespace

TEST_CASE("fetch joins the archives of wmt14-en-de to files of lines") {
  const TempDir dir;
  const auto archives = dir / "archives", folder = dir / "data" / "wmt14-en-de";
  write_stand_in_wmt14(archives);
  const std::string data_dir = (dir / "data").string();
  CHECK(fetch_dataset("wmt14-en-de", data_dir, archives.string()).is_valid());
  CHECK(read_file(folder / "train.en") == "a\nb\nc\nd\n");
  CHECK(read_file(folder / "train.de") == "A\nB\nC\nD\n");
  CHECK(read_file(folder / "valid.de") == "V\n");
  CHECK(read_file(folder / "test.en") == "one &amp; two\nthree\n");
  CHECK(read_file(folder / "test.de") == "eins\ndrei\n");
  CHECK(entries(folder) == 6);
  // Only missing splits are fetched.
  std::filesystem::remove(archives / "training-parallel-europarl-v7.tgz");
  std::filesystem::remove(folder / "valid.en");
  CHECK(fetch_dataset("wmt14-en-de", data_dir, archives.string()).is_valid());
  std::filesystem::remove(folder / "train.en");
  CHECK(contains(fetch_error("wmt14-en-de", dir / "data", archives.string()),
                 "training-parallel-europarl-v7.tgz"));
  const std::string other = tar_member("dev/newstest2013.en", "v\n") + std::string(1024, '\0');
  write_file(archives / "dev.tgz", other);
  CHECK(entries(folder) == 5);
  write_stand_in_wmt14(archives);
  write_file(archives / "dev.tgz", other);
  std::filesystem::remove(folder / "valid.en");
  CHECK(contains(fetch_error("wmt14-en-de", dir / "data", archives.string()),
                 "dev.tgz: contains no file newstest2013.de"));
  if (!can_download()) return;
  const ScopedVariable no_proxy("no_proxy", "127.0.0.1");
  write_stand_in_wmt14(archives);
  const TinyServer server(archives);
  CHECK(fetch_dataset("wmt14-en-de", (dir / "other").string(), server.url).is_valid());
  CHECK(read_file(dir / "other/wmt14-en-de/train.en") == "a\nb\nc\nd\n");
}

TEST_CASE("failed, truncated and too large downloads are errors with the URL and the reason") {
  if (!can_download()) {
    MESSAGE("skipped: built without libcurl");
    return;
  }
  const ScopedVariable no_proxy("no_proxy", "127.0.0.1");
  std::string url;
  {
    const TinyServer server(kPackage);
    url = server.url + "/t10k-labels-idx1-ubyte.gz";
    const auto error = [](const std::string& address, int64_t max_bytes) {
      return message_of<DataError>([&] { downloaded(address, max_bytes); });
    };
    CHECK(downloaded(url, 5125)->size() == 5125);
    CHECK(!downloaded(server.url + "/none", 100));
    CHECK(error(url, 5124) == url + ": expected at most 5124 bytes, found more");
    CHECK(contains(error(url + "?cut", 10000), url + "?cut: cannot be downloaded: "));
    CHECK(contains(error(server.url + "/broken", 10000), "the server answers 500"));
  }
  CHECK(contains(message_of<DataError>([&] { downloaded(url, 10000); }), url + ": cannot be downloaded: "));
}

TEST_CASE("fetch accepts only https, also in redirections") {
  if (!can_download()) {
    MESSAGE("skipped: built without libcurl");
    return;
  }
  const TempDir dir;
  const TinyServer server(kPackage);
  CHECK(contains(fetch_error("fashion-mnist", dir.path(), server.url + "/moved"),
                 "the server redirects to an address that is not https"));
  CHECK(entries(dir / "fashion-mnist") == 0);
  for (const std::string url : {"http://example.org", "ftp://127.0.0.1", "http://127.0.0.1.example.org",
                                "http://127.0.0.1@example.org", "gopher://localhost"})
    CHECK(contains(message_of<ConfigError>([&] { fetch_dataset("mnist", dir.path().string(), url); }),
                   "unsupported URL, expected https://"));
  CHECK_THROWS_AS(fetch_dataset("mnist", dir.path().string(), "https://[::"), ConfigError);
  for (const CatalogueEntry& set : list_catalogue_entries())
    CHECK((set.url.empty() || set.url.starts_with("https://")));
}

TEST_CASE("fetch unpacks only the known files of an archive") {
  if (!have_fashion_mnist()) return;
  const TempDir dir;
  const std::string archive = (dir / "set.tar.gz").string(), package = kPackage;
  std::string tar = tar_member("../../escaped", "x") + tar_member("set/link", "", '2');
  for (const std::string name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                 "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"})
    tar += tar_member("../set/" + name, unpacked(package + "/" + name + ".gz"));
  write_file(archive, tar + std::string(1024, '\0'));
  CHECK(fetch_dataset("fashion-mnist", (dir / "data").string(), archive).is_valid());
  CHECK(entries(dir / "data/fashion-mnist") == 4);
  CHECK(!std::filesystem::exists(dir / "escaped"));

  const auto error = [&](const std::string& contents) {
    write_file(archive, contents);
    return fetch_error("fashion-mnist", dir / "other", archive);
  };
  const std::string end(1024, '\0');
  CHECK(contains(error(tar_member("train-images-idx3-ubyte", "short") + end),
                 "train-images-idx3-ubyte: expected 47040016 bytes, found 5"));
  CHECK(contains(error(tar_member("readme", "text") + end), "contains no file train-images-idx3-ubyte"));
  CHECK(contains(error(tar_member("readme", "text")), "contains no file train-images-idx3-ubyte"));
  CHECK(error(std::string(512, 'x')) == archive + ": cannot be unpacked: Unrecognized archive format");
  CHECK(contains(error(tar.substr(0, 5000)), archive + ": cannot be unpacked: Truncated"));
  CHECK(contains(error(tar.substr(0, 700)), archive + ": cannot be unpacked: Truncated"));
  CHECK(
      contains(fetch_error("fashion-mnist", dir / "other", (dir / "none.tar.gz").string()), "no such file"));
  CHECK(entries(dir / "other/fashion-mnist") == 0);
  tar[2 * 1024 + 700] ^= 1;
  CHECK(contains(error(tar + end),
                 "set.tar.gz, train-images-idx3-ubyte: expected 47040016 bytes with SHA-256 c59f"));
  CHECK(entries(dir / "other/fashion-mnist") == 3);
}

TEST_CASE("fetch finds the published .gz files in an archive, in any folder and beside other files") {
  if (!have_fashion_mnist()) return;
  const TempDir dir;
  const std::string package = kPackage, deep = std::string(120, 'd') + "/raw/", end(1024, '\0');
  const std::vector<std::string> names{"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                       "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
  const auto packed = [&](const std::string& name) {
    return tapeformer::read_file(package + "/" + name + ".gz");
  };
  const auto record = [](const std::string& text) {  // of the pax format, with the size of the record
    const size_t size = text.size() + 5;
    return concat_text(size, " ", text, "\n");
  };
  // The files of another data set have the same names. Paths of more than 100 bytes need an extension.
  std::string tar = tar_member("mnist/" + names[0] + ".gz", packed(names[3]));
  tar += tar_member("mnist/" + names[1], std::string(60008, 'x'));
  tar += tar_member("set/" + names[0] + ".gz", packed(names[0]));
  tar += tar_member("././@LongLink", deep + names[1] + ".gz" + std::string(1, '\0'), 'L');
  tar += tar_member(deep.substr(0, 100), packed(names[1]));
  tar += tar_member("PaxHeaders/t10k", record("path=" + deep + names[2] + ".gz"), 'x');
  tar += tar_member(deep.substr(0, 100), packed(names[2]));
  tar += tar_member("set/" + names[3], unpacked(package + "/" + names[3] + ".gz"));
  for (const std::string name : {"a.tar", "a.tgz"}) {
    write_file(dir / name, tar + end);
    CHECK(
        fetch_dataset("fashion-mnist", (dir / ("data-" + name)).string(), (dir / name).string()).is_valid());
    CHECK(entries(dir / ("data-" + name) / "fashion-mnist") == 4);
  }
  CHECK(std::filesystem::exists(dir / "data-a.tar/fashion-mnist/t10k-images-idx3-ubyte.gz"));

  std::vector<std::pair<std::string, std::string>> files{{"mnist/" + names[0] + ".gz", "other"}};
  for (const std::string& name : names) files.emplace_back("a/raw/" + name + ".gz", packed(name));
  write_file(dir / "a.zip", stored_zip(files));
  CHECK(fetch_dataset("fashion-mnist", (dir / "zip").string(), (dir / "a.zip").string()).is_valid());
  files.pop_back();
  write_file(dir / "a.zip", stored_zip(files));
  CHECK(contains(fetch_error("fashion-mnist", dir / "cut", (dir / "a.zip").string()),
                 "a.zip, train-images-idx3-ubyte.gz: expected"));
  files.erase(files.begin());
  write_file(dir / "a.zip", stored_zip(files));
  std::filesystem::remove_all(dir / "cut");
  CHECK(contains(fetch_error("fashion-mnist", dir / "cut", (dir / "a.zip").string()),
                 "a.zip: contains no file t10k-labels-idx1-ubyte or t10k-labels-idx1-ubyte.gz"));
  write_file(dir / "a.tar.xz", std::string("x"));
  CHECK(contains(fetch_error("fashion-mnist", dir / "xz", (dir / "a.tar.xz").string()),
                 "a.tar.xz: expected a folder, or a .tar.gz, .tgz, .tar or .zip archive"));
}
