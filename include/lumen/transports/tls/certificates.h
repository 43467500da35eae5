// Certificates: the server's certificate, its key and the rules of its TLS, as read from files.
// Threads: any; a reload is seen by the connections that begin after it. Memory: the heap.
// Errors: a Status with the file, what it holds and the fix; a reload that fails changes nothing.
#pragma once

#include <lumen/base/result.h>

#include <memory>
#include <mutex>
#include <string>

struct ssl_ctx_st;

namespace lumen::tls {

// PEM files.
struct Files {
  std::string certificate;  // the server's, then those that vouch for it
  std::string key;          // its private key; empty: in the same file
  std::string client_ca;    // clients show a certificate of one of these; empty: none is asked for
};

class Certificates {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Certificates>> load(Files files);
  // Reads the files anew.
  [[nodiscard]] Status reload();
  // For one more connection.
  [[nodiscard]] std::shared_ptr<ssl_ctx_st> current() const;

 private:
  Certificates(Files files, std::shared_ptr<ssl_ctx_st> context);

  const Files files_;
  mutable std::mutex mutex_;  // of the pointer below; no I/O thread takes it
  std::shared_ptr<ssl_ctx_st> context_;
};

}  // namespace lumen::tls
