module kvasir/test/sdk-python

go 1.26.0

require kvasir/test/program v0.0.0

replace kvasir/test/program => ../program
