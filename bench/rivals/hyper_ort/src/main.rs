// hyper 1 on a current-thread tokio, the model inside the handler: raw float32 bytes in and out.
// Threads: one. Memory: the body is copied once, from where hyper received it into the row.
// Errors: a request of the wrong length is a 400; what fails at start ends the process.
//   bench_hyper_ort PORT MODEL_FILE ONNX_RUNTIME_LIBRARY AXIS...
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{server::conn::http1, service::service_fn, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use ort::session::{builder::GraphOptimizationLevel, Session};
use ort::value::TensorRef;
use std::{cell::RefCell, error::Error, rc::Rc};

type Failure = Box<dyn Error + Send + Sync>;
type Reply = Result<Response<Full<Bytes>>, Failure>;

struct Model {
    session: Session,
    shape: Vec<i64>,
}

impl Model {
    fn run(&mut self, row: &[f32]) -> Result<Bytes, Failure> {
        let input = TensorRef::from_array_view((self.shape.clone(), row))?;
        let outputs = self.session.run(ort::inputs![input])?;
        let (_, values) = outputs[0].try_extract_tensor::<f32>()?;
        Ok(Bytes::copy_from_slice(as_bytes(values)))
    }
}

fn as_bytes(values: &[f32]) -> &[u8] {
    // SAFETY: every f32 is four initialised bytes, and u8 has no alignment.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), std::mem::size_of_val(values)) }
}

fn as_bytes_mut(values: &mut [f32]) -> &mut [u8] {
    let size = std::mem::size_of_val(values);
    // SAFETY: as above, and any four bytes are an f32.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size) }
}

async fn infer(
    request: Request<Incoming>,
    model: Rc<RefCell<Model>>,
    row: Rc<RefCell<Vec<f32>>>,
) -> Reply {
    let mut body = request.into_body();
    let mut filled = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let mut row = row.borrow_mut();
        let end = filled + data.len();
        let Some(place) = as_bytes_mut(&mut row).get_mut(filled..end) else {
            return refuse();
        };
        place.copy_from_slice(&data);
        filled = end;
    }
    let row = row.borrow();
    if filled != as_bytes(&row).len() {
        return refuse();
    }
    Ok(Response::new(Full::new(model.borrow_mut().run(&row)?)))
}

fn refuse() -> Reply {
    let wanted = Full::new(Bytes::from_static(b"wanted one row of raw float32\n"));
    Ok(Response::builder().status(StatusCode::BAD_REQUEST).body(wanted)?)
}

async fn serve(port: u16, model: Model) -> Result<(), Failure> {
    let floats = model.shape.iter().product::<i64>() as usize;
    let model = Rc::new(RefCell::new(model));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let model = model.clone();
        // One request at a time on a connection, so a row for each connection is enough.
        let row = Rc::new(RefCell::new(vec![0f32; floats]));
        let service = service_fn(move |request| infer(request, model.clone(), row.clone()));
        let connection = http1::Builder::new()
            .pipeline_flush(false)
            .serve_connection(TokioIo::new(stream), service);
        tokio::task::spawn_local(async move {
            if let Err(error) = connection.await {
                eprintln!("bench_hyper_ort: {error}");
            }
        });
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    if words.len() < 5 {
        return Err("usage: bench_hyper_ort PORT MODEL_FILE ONNX_RUNTIME_LIBRARY AXIS...".into());
    }
    let environment = ort::init_from(&words[3])?.build()?;
    let session = Session::builder(&environment)?
        .with_optimization_level(GraphOptimizationLevel::Level3)?
        .with_intra_threads(1)?
        .with_inter_threads(1)?
        .with_parallel_execution(false)?
        .commit_from_file(&words[2])?;
    let shape = words[4..].iter().map(|axis| axis.parse()).collect::<Result<Vec<i64>, _>>()?;
    let model = Model { session, shape };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, serve(words[1].parse()?, model))
        .map_err(|error| error as Box<dyn Error>)
}
