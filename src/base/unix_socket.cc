// Unix sockets: a listener whose file can't be had by two servers or be opened too early. Control
// plane.
#include <lumen/base/unix_socket.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace lumen {
namespace {

constexpr mode_t kSocketMode = 0660;
constexpr size_t kMaxUnixPathBytes = sizeof(sockaddr_un::sun_path) - 1;
// The kernel cuts this to net.core.somaxconn.
constexpr int kListenBacklog = 4096;
// Another server's bind() takes microseconds; a program that holds the lock for longer does not let
// go.
constexpr int kLockTries = 100;
constexpr int kLockPauseMs = 10;

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Between "nobody answers there" and unlink() a second server may have bound its own socket, which
// would then lose its file. A lock on the folder closes that gap, and leaves no lock file behind.
Result<UniqueFd> lock_folder(const std::string& path) {
  const std::string folder = parent_of(path);
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) {
    return Status::from_errno(errno, "unix socket %s: opening its folder %s", path.c_str(),
                              folder.c_str());
  }
  for (int i = 0; i < kLockTries; ++i) {
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
    if (errno != EWOULDBLOCK) break;
    (void)::poll(nullptr, 0, kLockPauseMs);
  }
  return Status::from_errno(errno, "unix socket %s: locking its folder %s", path.c_str(),
                            folder.c_str());
}

Status refuse_live(const std::string& path) {
  return Status::error(Code::kAlreadyExists,
                       "unix socket %s: another server listens there; wanted a path of its own",
                       path.c_str());
}

// Nothing is at `path` afterwards.
Status remove_stale(const std::string& path, const sockaddr_un& address, int type) {
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) {
    if (errno == ENOENT) return {};
    return Status::from_errno(errno, "unix socket %s", path.c_str());
  }
  if (!S_ISSOCK(found.st_mode)) {
    return Status::error(Code::kAlreadyExists,
                         "unix socket %s: a file that is no socket is there, and is left alone; "
                         "wanted another path",
                         path.c_str());
  }
  const UniqueFd probe(::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe.valid()) return Status::from_errno(errno, "opening a unix socket");
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
      errno == EAGAIN) {  // a full backlog: somebody is there, and busy
    return refuse_live(path);
  }
  if (errno == ENOENT) return {};
  if (errno != ECONNREFUSED) {
    return Status::from_errno(errno, "unix socket %s: a socket is there that can't be probed",
                              path.c_str());
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return Status::from_errno(errno, "unix socket %s: removing the stale one", path.c_str());
  }
  return {};
}

}  // namespace

Status check_unix_path(std::string_view path) {
  const bool has_nul = path.find('\0') != std::string_view::npos;
  if (!path.empty() && path.size() <= kMaxUnixPathBytes && !has_nul) return {};
  return Status::error(Code::kInvalidArgument,
                       "unix socket '%.*s': got a path of %zu bytes%s, wanted 1 to %zu (the "
                       "kernel's limit); a shorter folder or a relative path helps",
                       static_cast<int>(path.size()), path.data(), path.size(),
                       has_nul ? " with a NUL" : "", kMaxUnixPathBytes);
}

std::string default_unix_path() {
  const char* folder = std::getenv("XDG_RUNTIME_DIR");
  // The XDG base directory specification: a path that is not absolute is to be ignored.
  if (folder == nullptr || folder[0] != '/') return {};
  std::string path = folder;
  path += "/lumen.sock";
  return path.size() <= kMaxUnixPathBytes ? path : std::string();
}

UnixListener::UnixListener(UniqueFd fd, std::string path, dev_t device, ino_t inode) noexcept
    : fd_(std::move(fd)), path_(std::move(path)), device_(device), inode_(inode) {}

UnixListener& UnixListener::operator=(UnixListener&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::move(other.fd_);
    path_ = std::move(other.path_);
    device_ = other.device_;
    inode_ = other.inode_;
  }
  return *this;
}

void UnixListener::close() noexcept {
  if (!fd_.valid()) return;
  // While the socket is open its inode is in use, so no other file can have the same number.
  struct stat found{};
  if (::lstat(path_.c_str(), &found) == 0 && S_ISSOCK(found.st_mode) && found.st_dev == device_ &&
      found.st_ino == inode_) {
    (void)::unlink(path_.c_str());
  }
  fd_.reset();
}

sockaddr_un unix_address(std::string_view path) noexcept {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<UnixListener> listen_unix(const std::string& path, UnixSocketKind kind) {
  const int type = kind == UnixSocketKind::kStream ? SOCK_STREAM : SOCK_SEQPACKET;
  LUMEN_RETURN_IF_ERROR(check_unix_path(path));
  const sockaddr_un address = unix_address(path);
  // In a shared folder another program may hold the lock for long. The lock matters to the removal
  // of a stale socket; bind() gives a path that is free to one server alone.
  const Result<UniqueFd> lock = lock_folder(path);
  if (!lock.ok() && ::access(path.c_str(), F_OK) == 0) return lock.status();
  LUMEN_RETURN_IF_ERROR(remove_stale(path, address, type));
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::from_errno(errno, "opening a unix socket");
  // Linux makes the file with the socket's own mode, less the umask: never wider than this, not for
  // a moment. Bits that the umask took are put back before listen(), when connect() is still
  // refused.
  if (::fchmod(fd.get(), kSocketMode) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Status::from_errno(errno, "binding unix socket %s", path.c_str());
  }
  struct stat made{};
  if (::lstat(path.c_str(), &made) != 0 || !S_ISSOCK(made.st_mode)) {
    return Status::from_errno(errno, "unix socket %s is gone as soon as it was made", path.c_str());
  }
  UnixListener listener(std::move(fd), path, made.st_dev, made.st_ino);
  if ((made.st_mode & 07777) != kSocketMode && ::chmod(path.c_str(), kSocketMode) != 0) {
    return Status::from_errno(errno, "unix socket %s: setting its mode to 0660", path.c_str());
  }
  if (::listen(listener.fd(), kListenBacklog) != 0) {
    return Status::from_errno(errno, "listening on unix socket %s", path.c_str());
  }
  return listener;
}

std::optional<PeerCredentials> peer_credentials(int fd) noexcept {
  // A TCP socket answers SO_PEERCRED too, with nobody's.
  int domain = 0;
  socklen_t size = sizeof(domain);
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX) {
    return std::nullopt;
  }
  ucred credentials{};
  size = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

}  // namespace lumen
