#include <cuda.h>
#include <cublas_v2.h>
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec*1e6+t.tv_nsec/1e3;}
__global__ void add(float *x, float *y, long n){ long i=threadIdx.x; if(i<n) y[i]=x[i]+1; }
static int cmp(const void*a,const void*b){double x=*(double*)a,y=*(double*)b;return x<y?-1:x>y;}
#define MED(label, n, code) do{ double t[41]; for(int r=0;r<41;r++){cudaDeviceSynchronize(); double begin_=now(); for(int i=0;i<n;i++){code;} t[r]=(now()-begin_)/n;} qsort(t,41,8,cmp); printf("%-50s x%-4d median %.2f us (%.2f..%.2f)\n",label,n,t[20],t[4],t[36]);}while(0)
int main(){
  float *x,*y,*z; cudaMalloc(&x,64*64*4); cudaMalloc(&y,64*64*4); cudaMalloc(&z,64*64*4);
  cudaMemset(x,0,64*64*4);cudaMemset(y,0,64*64*4);cudaMemset(z,0,64*64*4);
  cudaStream_t s=0, side; cudaStreamCreate(&side);
  cudaFunction_t f; cudaGetFuncBySymbol(&f,(const void*)add);
  long n=64; void*args[]={&x,&y,&n};
  CUlaunchConfig c={1,1,1,64,1,1,0,(CUstream)s,0,0};
  CUlaunchAttribute a[1]; a[0].id=CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION; a[0].value.programmaticStreamSerializationAllowed=1;
  CUlaunchConfig e=c; e.attrs=a; e.numAttrs=1;
  cuLaunchKernelEx(&c,(CUfunction)f,args,0); cuLaunchKernelEx(&e,(CUfunction)f,args,0);
  for(int m=64;m<=256;m*=2){
   MED("cuLaunchKernelEx, legacy stream",m,cuLaunchKernelEx(&c,(CUfunction)f,args,0));
   MED("the same, early",m,cuLaunchKernelEx(&e,(CUfunction)f,args,0));
   MED("cuLaunchKernel",m,cuLaunchKernel((CUfunction)f,1,1,1,64,1,1,0,(CUstream)s,args,0));
   CUlaunchConfig q=c; q.hStream=side; MED("cuLaunchKernelEx, a stream of its own",m,cuLaunchKernelEx(&q,(CUfunction)f,args,0));
  }
  cublasHandle_t h; cublasCreate(&h); float one=1,zero=0;
  void*ws; cudaMalloc(&ws,32<<20); cublasSetStream(h,s); cublasSetWorkspace(h,ws,32<<20);
  MED("cublasSgemm 64",64,cublasSgemm(h,CUBLAS_OP_N,CUBLAS_OP_N,64,64,64,&one,x,64,y,64,&zero,z,64));
  MED("cublasSetStream+SetWorkspace",64,(cublasSetStream(h,s),cublasSetWorkspace(h,ws,32<<20)));
  // what a graph costs
  for (int graphnodes=64; graphnodes<=256; graphnodes*=2){
   cudaGraph_t g; cudaGraphExec_t ge; cudaStreamBeginCapture(side,cudaStreamCaptureModeThreadLocal);
   double t0=now();
   CUlaunchConfig q=c; q.hStream=side;
   for(int i=0;i<graphnodes;i++) cuLaunchKernelEx(&q,(CUfunction)f,args,0);
   double t1=now(); cudaStreamEndCapture(side,&g); double t2=now();
   cudaGraphInstantiate(&ge,g,0); double t3=now(); cudaGraphUpload(ge,s); cudaDeviceSynchronize();
   printf("graph of %d: capture %.1f us a node, end %.1f us, instantiate %.1f us\n",graphnodes,(t1-t0)/graphnodes,t2-t1,t3-t2);
   MED("  its launch",1,cudaGraphLaunch(ge,s));
   size_t count=graphnodes; cudaGraphNode_t nodes[256]; cudaGraphGetNodes(g,nodes,&count);
   CUDA_KERNEL_NODE_PARAMS p; cuGraphKernelNodeGetParams((CUgraphNode)nodes[0],&p);
   MED("  cuGraphExecKernelNodeSetParams",64,cuGraphExecKernelNodeSetParams((CUgraphExec)ge,(CUgraphNode)nodes[i],&p));
   MED("  launch after 64 of these",1,({for(int j=0;j<64;j++)cuGraphExecKernelNodeSetParams((CUgraphExec)ge,(CUgraphNode)nodes[j],&p);cudaGraphLaunch(ge,s);}));
  }
  { cudaGraph_t g; cudaStreamBeginCapture(side,cudaStreamCaptureModeThreadLocal); cublasSetStream(h,side); cublasSetWorkspace(h,ws,32<<20);
    cublasSgemm(h,CUBLAS_OP_N,CUBLAS_OP_N,64,64,64,&one,x,64,y,64,&zero,z,64); cudaStreamEndCapture(side,&g);
    size_t k=0; cudaGraphGetNodes(g,0,&k); cudaGraphNode_t nd[8]; cudaGraphGetNodes(g,nd,&k); printf("Sgemm is %zu nodes\n",k);
    for(size_t i=0;i<k;i++){enum cudaGraphNodeType t; cudaGraphNodeGetType(nd[i],&t); printf(" type %d",t); if(t==0){CUDA_KERNEL_NODE_PARAMS p; cuGraphKernelNodeGetParams((CUgraphNode)nd[i],&p); const char*nm="?"; cuFuncGetName(&nm,p.func); printf(" %s grid %u %u %u block %u shared %u",nm,p.gridDimX,p.gridDimY,p.gridDimZ,p.blockDimX,p.sharedMemBytes); } printf("\n");}
  }
  return 0; }
