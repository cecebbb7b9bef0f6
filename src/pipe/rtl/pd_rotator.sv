// Rotates the bytes of a beat, each with its enable bit, towards higher ones by `amount`: two cycles.
module pd_rotator (
  input  logic         clk,
  input  logic [5:0]   amount,
  input  logic [511:0] data,
  input  logic [63:0]  keep,
  output logic [511:0] rotated_data,
  output logic [63:0]  rotated_keep
);
  logic [511:0] coarse_data, half_data, quarter_data, fine_data, pair_data;
  logic [63:0] coarse_keep, half_keep, quarter_keep, fine_keep, pair_keep;
  logic [2:0] amount_later;

  assign half_data    = amount[5] ? {data[255:0], data[511:256]} : data;
  assign half_keep    = amount[5] ? {keep[31:0], keep[63:32]} : keep;
  assign quarter_data = amount[4] ? {half_data[383:0], half_data[511:384]} : half_data;
  assign quarter_keep = amount[4] ? {half_keep[47:0], half_keep[63:48]} : half_keep;
  assign fine_data    = amount_later[2] ? {coarse_data[479:0], coarse_data[511:480]} : coarse_data;
  assign fine_keep    = amount_later[2] ? {coarse_keep[59:0], coarse_keep[63:60]} : coarse_keep;
  assign pair_data    = amount_later[1] ? {fine_data[495:0], fine_data[511:496]} : fine_data;
  assign pair_keep    = amount_later[1] ? {fine_keep[61:0], fine_keep[63:62]} : fine_keep;

  always_ff @(posedge clk) begin
    coarse_data  <= amount[3] ? {quarter_data[447:0], quarter_data[511:448]} : quarter_data;
    coarse_keep  <= amount[3] ? {quarter_keep[55:0], quarter_keep[63:56]} : quarter_keep;
    amount_later <= amount[2:0];
    rotated_data <= amount_later[0] ? {pair_data[503:0], pair_data[511:504]} : pair_data;
    rotated_keep <= amount_later[0] ? {pair_keep[62:0], pair_keep[63]} : pair_keep;
  end
endmodule
