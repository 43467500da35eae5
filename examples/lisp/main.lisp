;;;; Eight Lisp threads write records of 16 bytes into alien memory; each full buffer is checked in
;;;; the flush callback. Run: sbcl --script main.lisp /path/to/liblumen_c.so
(load (merge-pathnames "shared-buffer.lisp" *load-truename*))
(defpackage :lumen-example (:use :cl :lumen-shared-buffer :sb-sys))
(in-package :lumen-example)

(defconstant +threads+ 8)
(defconstant +records+ 50000)

(lumen-shared-buffer:open-library (second sb-ext:*posix-argv*))

(defvar *next*)    ; of each thread, the number of the record that comes next
(defvar *wrong*)   ; records out of order, lost or torn
(defvar *buffers*)

(defun check (flushed)
  (incf *buffers*)
  (do-runs (sap bytes flushed)
    (loop for at from 0 below bytes by 16
          for thread = (sap-ref-64 sap at)
          for number = (sap-ref-64 sap (+ at 8))
          do (unless (and (< thread +threads+) (= number (aref *next* thread))) (incf *wrong*))
             (when (< thread +threads+) (setf (aref *next* thread) (1+ number))))))

(defun write-records (buffer thread)
  (with-writer (writer buffer)
    (dotimes (number +records+)
      (with-record (record writer 16)
        (setf (sap-ref-64 record 0) thread
              (sap-ref-64 record 8) number)))))

(defun run (mode)
  (setf *next* (make-array +threads+ :initial-element 0) *wrong* 0 *buffers* 0)
  (with-shared-buffer (buffer (flushed) (check flushed) :mode mode)
    (let ((threads (loop for i below +threads+
                         collect (let ((i i))
                                   (sb-thread:make-thread (lambda () (write-records buffer i)))))))
      (mapc #'sb-thread:join-thread threads))
    (unless (flush buffer) (error "not flushed within 10 s")))
  (format t "~(~a~): ~d records of ~d threads in ~d buffers, ~d wrong~%"
          mode (reduce #'+ *next*) +threads+ *buffers* *wrong*)
  (unless (and (zerop *wrong*) (every (lambda (n) (= n +records+)) *next*))
    (sb-ext:exit :code 1 :abort t)))

(run :dense)
(run :lane)
