;;;; SharedBuffer from SBCL, over the C ABI: alien memory, SAPs, macros to reserve, commit, flush.
;;;; Threads: WITH-WRITER gives the calling thread its own handle. Memory: alien, freed at the end.
;;;; Errors: an ERROR with the library's reason; WITH-RECORD runs its body only if there is room.
(defpackage :lumen-shared-buffer
  (:use :cl :sb-alien :sb-sys)
  (:export #:open-library #:with-shared-buffer #:with-writer #:with-record #:flush #:do-runs))
(in-package :lumen-shared-buffer)

(define-alien-type options
    (struct lumen-sb-options
            (version (unsigned 32)) (mode (unsigned 32)) (when-full (unsigned 32))
            (flush-by-writers (unsigned 32))
            (buffer-bytes size-t) (buffer-count size-t) (max-writers size-t) (lane-bytes size-t)
            (stall-timeout-ns (unsigned 64))
            (flush system-area-pointer) (context system-area-pointer)))

(defun open-library (path) (load-shared-object path))

(defmacro call (name result &rest typed-arguments)
  `(alien-funcall (extern-alien ,name (function ,result ,@(mapcar #'first typed-arguments)))
                  ,@(mapcar #'second typed-arguments)))

(defun make-buffer (flush memory mode buffer-bytes buffer-count lane-bytes)
  (with-alien ((o options) (reason (array char 256)))
    (setf (slot o 'version) 1 (slot o 'mode) (ecase mode (:dense 0) (:lane 1))
          (slot o 'when-full) 0 (slot o 'flush-by-writers) 1
          (slot o 'buffer-bytes) buffer-bytes (slot o 'buffer-count) buffer-count
          (slot o 'max-writers) 64 (slot o 'lane-bytes) lane-bytes
          (slot o 'stall-timeout-ns) (* 10 1000 1000 1000)
          (slot o 'flush) (alien-sap flush) (slot o 'context) (int-sap 0))
    (let ((buffer (call "lumen_sb_create" system-area-pointer
                        ((* options) (addr o)) (system-area-pointer memory)
                        (size-t (* buffer-bytes buffer-count))
                        ((* char) (cast reason (* char))) (size-t 256))))
      (when (zerop (sap-int buffer)) (error "~a" (cast reason c-string)))
      buffer)))

(defmacro with-shared-buffer ((buffer (flushed) on-flush
                               &key (mode :dense) (buffer-bytes 65536) (buffer-count 4)
                                    (lane-bytes 4096))
                              &body body)
  "BODY with BUFFER, over alien memory. ON-FLUSH sees each full buffer as the SAP FLUSHED."
  (let ((memory (gensym)) (callback (gensym)))
    `(let* ((,memory (make-alien (unsigned 8) (* ,buffer-bytes ,buffer-count)))
            (,callback (sb-alien::alien-lambda void ((context system-area-pointer)
                                                     (,flushed system-area-pointer))
                         (declare (ignore context))
                         ,on-flush
                         (values)))
            (,buffer (make-buffer ,callback (alien-sap ,memory) ,mode ,buffer-bytes ,buffer-count
                                  ,lane-bytes)))
       (unwind-protect (progn ,@body)
         (call "lumen_sb_destroy" void (system-area-pointer ,buffer))
         (free-alien ,memory)))))

(defmacro with-writer ((writer buffer) &body body)
  `(let ((,writer (call "lumen_sb_attach" system-area-pointer (system-area-pointer ,buffer)
                        ((* char) sb-alien::(sap-alien (sb-sys:int-sap 0) (* char))) (size-t 0))))
     (when (zerop (sap-int ,writer)) (error "no writer left"))
     (unwind-protect (progn ,@body)
       (call "lumen_sb_detach" void (system-area-pointer ,writer)))))

(defmacro with-record ((record writer bytes) &body body)
  "Reserves BYTES, runs BODY with the SAP RECORD, commits. NIL: no room. If BODY unwinds the record
stays open, and the writer's end hands it over as zeroes."
  `(let ((,record (call "lumen_sb_reserve" system-area-pointer (system-area-pointer ,writer)
                        (size-t ,bytes))))
     (unless (zerop (sap-int ,record))
       ,@body
       (call "lumen_sb_commit" void (system-area-pointer ,writer))
       t)))

(defun flush (buffer &optional (timeout-ns (* 10 1000 1000 1000)))
  (/= 0 (logand 255 (call "lumen_sb_flush" (unsigned 8) (system-area-pointer buffer)
                          ((unsigned 64) timeout-ns)))))

(defmacro do-runs ((sap bytes flushed) &body body)
  "BODY for each run of committed records in FLUSHED: lumen_sb_flushed, 8-byte words."
  (let ((i (gensym)) (run (gensym)))
    `(dotimes (,i (sap-ref-64 ,flushed 32))
       (let* ((,run (sap+ (sap-ref-sap ,flushed 24) (* 16 ,i)))
              (,sap (sap+ (sap-ref-sap ,flushed 8) (sap-ref-64 ,run 0)))
              (,bytes (sap-ref-64 ,run 8)))
         ,@body))))
