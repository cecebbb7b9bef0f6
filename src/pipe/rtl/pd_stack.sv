// PD Stack: copies what entries of command queues in the host's memory say, from there to there. Streams to the host
// are in the manner of AXI: something passes in a cycle in which both `valid` and `ready` are set.
module pd_stack #(
  parameter QUEUES = 16,
  parameter DEPTH  = 1024,  // of a queue, in entries of 32 bytes
  parameter SLOTS  = 32,    // payloads of 4 KB under way
  parameter ROWS   = 32,    // of two entries that are fetched
  parameter TAGS   = 64,    // of reads under way
  localparam QW = $clog2(QUEUES),
  localparam PW = $clog2(DEPTH) + 1,
  localparam SW = $clog2(SLOTS),
  localparam RW = $clog2(ROWS),
  localparam TW = $clog2(TAGS),
  localparam OW = QW > SW ? QW : SW
) (
  input  logic          clk,
  input  logic          reset,
  output logic          ready,
  output logic          fault,
  input  logic          mmio_valid,
  input  logic [15:0]   mmio_address,
  input  logic [63:0]   mmio_data,
  output logic          read_request_valid,
  input  logic          read_request_ready,
  output logic [63:0]   read_request_address,
  output logic [9:0]    read_request_length,
  output logic [TW-1:0] read_request_tag,
  input  logic          read_data_valid,
  output logic          read_data_ready,
  input  logic [TW-1:0] read_data_tag,
  input  logic [511:0]  read_data_beat,
  input  logic          read_data_last,
  input  logic          read_data_error,
  output logic          write_request_valid,
  input  logic          write_request_ready,
  output logic [63:0]   write_request_address,
  output logic [511:0]  write_request_data,
  output logic [63:0]   write_request_keep,
  output logic          write_request_last,
  output logic [OW:0]   write_request_tag,
  input  logic          write_response_valid,
  output logic          write_response_ready,
  input  logic [OW:0]   write_response_tag,
  input  logic          write_response_error,
  output logic          msi_valid,
  input  logic          msi_ready,
  output logic [QW-1:0] msi_queue
);
  logic [63:0] sq_base, cq_base, sq_address, cq_address;
  logic [QW-1:0] look_queue, complete_queue;
  logic [PW-1:0] look_sq_head, look_sq_tail, look_cq_head, fetched_head;
  logic [PW-2:0] complete_place;
  logic [4:0] sq_count;
  logic look_enable, fetched_valid, complete_valid;

  pd_state_registers #(.QUEUES(QUEUES), .DEPTH(DEPTH)) registers (
    .clk, .reset, .ready, .mmio_valid, .mmio_address, .mmio_data, .sq_base, .cq_base,
    .look_queue, .look_sq_head, .look_sq_tail, .look_cq_head,
    .fetched_valid, .fetched_queue(look_queue), .fetched_head,
    .complete_queue, .complete_place, .complete_valid);

  pd_pointer_calculator #(.QUEUES(QUEUES), .DEPTH(DEPTH)) calculator (
    .clk, .sq_base, .cq_base, .sq_enable(look_enable), .sq_queue(look_queue),
    .sq_head(look_sq_head), .sq_tail(look_sq_tail), .cq_head(look_cq_head),
    .sq_address, .sq_count, .cq_queue(complete_queue), .cq_place(complete_place), .cq_address);

  logic entry_cmd_valid, entry_cmd_ready, entry_valid, entry_fault;
  logic [63:0] entry_cmd_address;
  logic [4:0] entry_cmd_count;
  logic [RW-1:0] entry_cmd_row, entry_row;
  logic [QW-1:0] entry_queue;
  logic [1:0] entry_halves;
  logic [511:0] entry_data;

  logic read_cmd_valid, read_cmd_ready, read_done_valid, read_done_failed;
  logic [SW-1:0] read_cmd_slot, read_done_slot;
  logic [63:0] read_cmd_address;
  logic [12:0] read_cmd_length;
  logic [5:0] read_cmd_alignment;

  logic write_cmd_valid, write_cmd_ready, write_done_valid, write_done_failed;
  logic [SW-1:0] write_cmd_slot, write_done_slot;
  logic [63:0] write_cmd_address;
  logic [12:0] write_cmd_length;

  logic completion_cmd_valid, completion_cmd_ready, completed_valid, completed_fault;
  logic [QW-1:0] completion_cmd_queue, completed_queue;
  logic [63:0] completion_cmd_address;
  logic [255:0] completion_cmd_entry;

  pd_controller #(.QUEUES(QUEUES), .DEPTH(DEPTH), .SLOTS(SLOTS), .ROWS(ROWS)) controller (
    .clk, .reset, .ready, .fault,
    .look_queue, .look_sq_head, .look_sq_tail, .look_cq_head, .look_enable, .fetched_valid, .fetched_head,
    .sq_address, .sq_count, .complete_queue, .complete_valid, .cq_address,
    .entry_cmd_valid, .entry_cmd_ready, .entry_cmd_address, .entry_cmd_count, .entry_cmd_row,
    .entry_valid, .entry_row, .entry_queue, .entry_halves, .entry_data, .entry_fault,
    .read_cmd_valid, .read_cmd_ready, .read_cmd_slot, .read_cmd_address, .read_cmd_length, .read_cmd_alignment,
    .read_done_valid, .read_done_slot, .read_done_failed,
    .write_cmd_valid, .write_cmd_ready, .write_cmd_slot, .write_cmd_address, .write_cmd_length,
    .write_done_valid, .write_done_slot, .write_done_failed,
    .completion_cmd_valid, .completion_cmd_ready, .completion_cmd_queue, .completion_cmd_address,
    .completion_cmd_entry, .completed_valid, .completed_queue, .completed_fault,
    .msi_valid, .msi_ready, .msi_queue);

  logic buffer_write_valid, buffer_read_enable;
  logic [SW-1:0] buffer_write_slot, buffer_read_slot;
  logic [5:0] buffer_write_row, buffer_rotation, buffer_read_row;
  logic [511:0] buffer_write_data, buffer_read_data;
  logic [63:0] buffer_write_keep;

  pd_dma_read #(.QUEUES(QUEUES), .SLOTS(SLOTS), .ROWS(ROWS), .TAGS(TAGS)) dma_read (
    .clk, .reset,
    .entry_cmd_valid, .entry_cmd_ready, .entry_cmd_queue(look_queue), .entry_cmd_address, .entry_cmd_count,
    .entry_cmd_row,
    .payload_cmd_valid(read_cmd_valid), .payload_cmd_ready(read_cmd_ready), .payload_cmd_slot(read_cmd_slot),
    .payload_cmd_address(read_cmd_address), .payload_cmd_length(read_cmd_length),
    .payload_cmd_alignment(read_cmd_alignment),
    .request_valid(read_request_valid), .request_ready(read_request_ready), .request_address(read_request_address),
    .request_length(read_request_length), .request_tag(read_request_tag),
    .data_valid(read_data_valid), .data_ready(read_data_ready), .data_tag(read_data_tag), .data_beat(read_data_beat),
    .data_last(read_data_last), .data_error(read_data_error),
    .entry_valid, .entry_row, .entry_queue, .entry_halves, .entry_data, .entry_fault,
    .write_valid(buffer_write_valid), .write_slot(buffer_write_slot), .write_row(buffer_write_row),
    .write_rotation(buffer_rotation), .write_data(buffer_write_data), .write_keep(buffer_write_keep),
    .done_valid(read_done_valid), .done_slot(read_done_slot), .done_failed(read_done_failed));

  pd_data_buffer #(.SLOTS(SLOTS)) data_buffer (
    .clk, .write_valid(buffer_write_valid), .write_slot(buffer_write_slot), .write_row(buffer_write_row),
    .rotation(buffer_rotation), .write_data(buffer_write_data), .write_keep(buffer_write_keep),
    .read_enable(buffer_read_enable), .read_slot(buffer_read_slot), .read_row(buffer_read_row),
    .read_data(buffer_read_data));

  pd_dma_write #(.QUEUES(QUEUES), .SLOTS(SLOTS)) dma_write (
    .clk, .reset,
    .payload_cmd_valid(write_cmd_valid), .payload_cmd_ready(write_cmd_ready), .payload_cmd_slot(write_cmd_slot),
    .payload_cmd_address(write_cmd_address), .payload_cmd_length(write_cmd_length),
    .completion_cmd_valid, .completion_cmd_ready, .completion_cmd_queue, .completion_cmd_address,
    .completion_cmd_entry,
    .read_enable(buffer_read_enable), .read_slot(buffer_read_slot), .read_row(buffer_read_row),
    .read_data(buffer_read_data),
    .request_valid(write_request_valid), .request_ready(write_request_ready), .request_address(write_request_address),
    .request_data(write_request_data), .request_keep(write_request_keep), .request_last(write_request_last),
    .request_tag(write_request_tag),
    .response_valid(write_response_valid), .response_ready(write_response_ready), .response_tag(write_response_tag),
    .response_error(write_response_error),
    .done_valid(write_done_valid), .done_slot(write_done_slot), .done_failed(write_done_failed),
    .completed_valid, .completed_queue, .completed_fault);

`ifndef SYNTHESIS
  pd_stream_check #(.WIDTH(74 + TW)) check_read_request (.clk, .reset,
    .valid(read_request_valid), .ready(read_request_ready),
    .payload({read_request_address, read_request_length, read_request_tag}));
  pd_stream_check #(.WIDTH(65 + TW)) check_read_data (.clk, .reset,
    .valid(read_data_valid), .ready(read_data_ready),
    .payload({read_data_tag, read_data_beat[63:0], read_data_last}));
  pd_stream_check #(.WIDTH(642 + OW)) check_write_request (.clk, .reset,
    .valid(write_request_valid), .ready(write_request_ready),
    .payload({write_request_address, write_request_data, write_request_keep, write_request_last, write_request_tag}));
  pd_stream_check #(.WIDTH(2 + OW)) check_write_response (.clk, .reset,
    .valid(write_response_valid), .ready(write_response_ready),
    .payload({write_response_tag, write_response_error}));
  pd_stream_check #(.WIDTH(QW)) check_msi (.clk, .reset, .valid(msi_valid), .ready(msi_ready), .payload(msi_queue));
`endif
endmodule
